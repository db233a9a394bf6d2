package httpcall

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/signature"
)

// MaxRequest is the largest request that a receiver accepts, in bytes: ten times the
// size of the largest batch.
const MaxRequest = 4 << 20

// maxBodies bounds the bodies that all receivers of the process hold at once, in bytes. Nobody knows who sends a body until all
// of it is there.
const maxBodies = 16 << 20

// bodies is how many bytes of bodies the process holds.
var bodies atomic.Int64

// errBusy means that the bodies of other requests take all of maxBodies.
var errBusy = errors.New("too many requests are received at once: send it again")

// readBody reads a body of at most MaxRequest bytes, and counts its memory in bodies until free is called.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, free func(), err error) {
	held := int64(0)
	free = func() { bodies.Add(-held) }
	from := http.MaxBytesReader(w, r.Body, MaxRequest)
	for {
		if len(body) == cap(body) {
			room := max(2*cap(body), 4<<10)
			held += int64(room)
			if bodies.Add(int64(room)) > maxBodies {
				return nil, free, errBusy
			}
			grown := make([]byte, len(body), room)
			copy(grown, body)
			bodies.Add(-int64(cap(body)))
			held -= int64(cap(body))
			body = grown
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, free, nil
		}
		if err != nil {
			return nil, free, err
		}
	}
}

// readTimeout limits how long a request may take to arrive. The sender is unknown
// until then, and the server of the shop may have no limit of its own.
const readTimeout = 10 * time.Second

// Receive reads a signed request into in, within 10 s. If the request is invalid, or other
// requests take all the memory for bodies, Receive sends the error response and returns false.
func Receive(w http.ResponseWriter, r *http.Request, keys signature.Keys, in any) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send a POST", http.StatusMethodNotAllowed)
		return false
	}
	// A ResponseWriter that cannot set a deadline, as in a test, has no connection to
	// protect.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) //mutant:signed-read-unlimited
	if err := signature.CheckHeaders(r.Header, time.Now()); err != nil {           // before the body is in memory
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return false
	}
	body, free, err := readBody(w, r)
	defer free()
	if errors.Is(err, errBusy) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return false
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		http.Error(w, "the request is incomplete", http.StatusBadRequest)
		return false
	}
	if err := keys.Verify(r.Header, body, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return false
	}
	if err := json.Unmarshal(body, in); err != nil {
		http.Error(w, "the request is not what docs/http.md describes: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// Reply sends the response to a request: out as JSON; or, if err is set, status 503
// if err wraps orderclose.ErrUnavailable, and 500 otherwise. The body of an error
// response is the text of err. If err has a method RetryAfter() time.Duration, the
// header Retry-After has its value in seconds, rounded up.
func Reply(w http.ResponseWriter, out any, err error) {
	var asked interface{ RetryAfter() time.Duration }
	if errors.As(err, &asked) && asked.RetryAfter() > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(asked.RetryAfter().Seconds()))))
	}
	switch {
	case errors.Is(err, orderclose.ErrUnavailable):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body, err := json.Marshal(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a client that has gone away asks again
}

// RefuseBrowsers answers 403 to requests that a browser sends for a page, unless they only read: GET and
// HEAD. A page of another site may send requests to the loopback, also under a host name of its own that
// resolves to it. Every browser sets Origin or Sec-Fetch-Site then; Alertmanager, curl and Kubernetes set
// neither. The header Host is not checked, because orchestrators use addresses and names of many kinds.
func RefuseBrowsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if !reads && (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "") {
			http.Error(w, "requests from a browser are refused: send it with another client, such as curl", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
