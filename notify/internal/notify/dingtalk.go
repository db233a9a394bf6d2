package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// A robot accepts 20 messages a minute, and then none for ten minutes. With these values no minute
// has more: robotBurst at once, and 10 while the minute lasts.
const (
	robotEvery = 6 * time.Second
	robotBurst = 10
)

// dingTalk sends to a custom robot of DingTalk.
type dingTalk struct {
	at    []string // the people to mention: their mobile numbers, or all
	limit *rate.Limiter
	now   func() time.Time
}

func (d *dingTalk) deliver(ctx context.Context, m *Message, target *url.URL) error {
	if !d.limit.AllowN(d.now(), 1) {
		return temporary(errors.New("too many messages: a robot of DingTalk accepts 20 a minute"))
	}
	timestamp := strconv.FormatInt(d.now().UnixMilli(), 10)
	q := target.Query()
	q.Set("timestamp", timestamp)
	q.Set("sign", sign(m.Secret, timestamp))
	target.RawQuery = q.Encode()
	body, err := toJSON(d.body(m))
	if err != nil {
		return fmt.Errorf("encode the message: %w", err)
	}
	answer, err := do(ctx, http.MethodPost, target, http.Header{"Content-Type": {"application/json; charset=utf-8"}}, []byte(body), m.Secret)
	if err != nil {
		return fmt.Errorf("DingTalk: %w", err)
	}
	var result struct {
		Code    *int   `json:"errcode"`
		Message string `json:"errmsg"`
	}
	if err := json.Unmarshal(answer, &result); err != nil || result.Code == nil {
		return temporary(fmt.Errorf("DingTalk: the answer has no errcode: %s", quote(answer, target, m.Secret)))
	}
	return robotError(*result.Code, quote([]byte(result.Message), target, m.Secret))
}

// body returns the body for a message. The people to mention must be in the text too.
func (d *dingTalk) body(m *Message) map[string]any {
	text, at := "### "+m.Title+"\n\n"+m.Text, map[string]any{}
	if m.Status == firing && len(d.at) > 0 {
		if slices.Contains(d.at, "all") {
			at["isAtAll"] = true
		} else {
			at["atMobiles"] = d.at
		}
		text += "\n\n@" + strings.Join(d.at, " @")
	}
	return map[string]any{"msgtype": "markdown", "markdown": map[string]string{"title": m.Title, "text": text}, "at": at}
}

// sign returns the signature of a request to a robot. timestamp is in milliseconds.
func sign(secret, timestamp string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(timestamp + "\n" + secret))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// permanentCodes are the errors of a robot that a retry does not fix.
var permanentCodes = []int{
	310000,                 // the signature, the address of the sender or a keyword is wrong
	300001, 300005, 400101, // there is no such access_token
	400013, 400102, 400106, // the group was dissolved, the robot disabled or removed
	40035, 43004, 400105, 460101, // the request is invalid or too large
	430101, 430102, 430103, 430104, // the content is not allowed
}

// robotError returns the error of a robot's answer, or nil. DingTalk answers 200 also to a message
// that it does not deliver.
func robotError(code int, message string) error {
	err := fmt.Errorf("DingTalk: errcode %d: %s", code, message)
	switch {
	case code == 0:
		return nil
	case code == 310000:
		return fmt.Errorf("%w: does secret_file hold the secret of this robot, and is the clock of this machine right?", err)
	case slices.Contains(permanentCodes, code):
		return err
	}
	return temporary(err)
}
