package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/httpcall"
)

// maxAnswer is how many bytes of the body of an answer are read, and drainTimeout for how long, so that the connection can be used again.
// Only the status and Retry-After are used.
const maxAnswer, drainTimeout = 4 << 10, 100 * time.Millisecond

var errNoEvent = errors.New("the row is no CloudEvent in JSON with specversion 1.0, id, source and type: fix the program that writes such rows")

// endpoint is the receiver.
type endpoint struct{ *httpcall.Client }

// post sends an event once.
func (p endpoint) post(ctx context.Context, e event) outcome {
	o := outcome{event: e}
	if e.body == nil {
		o.err = fmt.Errorf("the event has %d bytes, and at most %s are sent: give it up, and fix the program that writes such rows", e.size, maxEvent)
		return o
	}
	id, err := messageID(e.body)
	if err != nil {
		o.err = err
		return o
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	resp, err := p.Send(ctx, id, http.Header{"Content-Type": {orderclose.EventContentType}}, e.body)
	if err != nil {
		cancel()
		o.err, o.fails = err, true
		return o
	}
	go func() { // the status decides: nobody waits for the body //mutant:webhook-body-awaited
		defer cancel()
		defer time.AfterFunc(drainTimeout, cancel).Stop()
		defer resp.Body.Close()
		_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	}()
	if o.works = resp.StatusCode >= 200 && resp.StatusCode <= 299; !o.works {
		o.refused(resp)
	}
	return o
}

// refused says what another status than 2xx means. The text of the answer is not kept, because it may repeat the url.
func (o *outcome) refused(resp *http.Response) {
	answer := &httpcall.StatusError{Status: resp.StatusCode}
	o.err, o.fails = answer, answer.Unwrap() != nil || answer.Status == http.StatusInternalServerError
	o.works = !o.fails //mutant:webhook-refusals-hold
	o.wait = min(httpcall.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), longestWait)
	if answer.Status == http.StatusGone {
		o.wait = max(o.wait, longestPause)
	}
}

// text returns the error for the table.
func (o outcome) text() string { return httpcall.Cut(strings.ToValidUTF8(fmt.Sprint(o.err), ""), 400) }

// messageID returns the webhook-id of a CloudEvent, the same for each attempt and each duplicate. It is a hash: an id may have a dot, which
// separates the parts of what is signed, and letters that no header has.
func messageID(body []byte) (string, error) {
	var e struct{ SpecVersion, ID, Source, Type string }
	if err := json.Unmarshal(body, &e); err != nil || e.SpecVersion != "1.0" || e.ID == "" || e.Source == "" || e.Type == "" {
		return "", errNoEvent
	}
	sum := sha256.Sum256([]byte(e.Source + "\n" + e.ID)) //mutant:webhook-id-changes
	return "msg_" + hex.EncodeToString(sum[:16]), nil
}
