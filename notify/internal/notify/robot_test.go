package notify_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	robotToken  = "token-of-the-robot"
	robotSecret = "SEC-of-the-robot"
)

// robot stands in for a robot of DingTalk. It checks token, time and signature, and accepts at most 20 messages a minute.
type robot struct {
	*httptest.Server
	mu       sync.Mutex
	messages []robotMessage
	times    []time.Time // of all requests
	answer   string      // instead of accepting a valid message
}

// robotMessage is what DingTalk documents for a message in Markdown.
type robotMessage struct {
	Type     string `json:"msgtype"`
	Markdown struct{ Title, Text string }
	At       struct {
		AtMobiles []string
		IsAtAll   bool
	}
}

func newRobot(t *testing.T) *robot {
	t.Helper()
	r := &robot{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// address returns what DingTalk shows for a robot.
func (r *robot) address() string { return r.URL + "/robot/send?access_token=" + robotToken }

func (r *robot) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprint(w, r.handle(q)) // the status is 200, whatever happens
}

func (r *robot) handle(q *http.Request) string {
	now := time.Now()
	body, err := io.ReadAll(q.Body)
	var m robotMessage
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	recent := 0
	for _, t := range r.times {
		if now.Sub(t) < time.Minute {
			recent++
		}
	}
	r.times = append(r.times, now)
	params, _ := url.ParseQuery(q.URL.RawQuery)
	millis, _ := strconv.ParseInt(params.Get("timestamp"), 10, 64)
	h := hmac.New(sha256.New, []byte(robotSecret))
	fmt.Fprintf(h, "%s\n%s", params.Get("timestamp"), robotSecret)
	switch {
	case params.Get("access_token") != robotToken:
		return `{"errcode":300005,"errmsg":"token is not exist"}`
	case now.Sub(time.UnixMilli(millis)).Abs() > time.Hour:
		return `{"errcode":310000,"errmsg":"invalid timestamp"}`
	case params.Get("sign") != base64.StdEncoding.EncodeToString(h.Sum(nil)):
		return `{"errcode":310000,"errmsg":"sign not match"}`
	case recent >= 20:
		return `{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}`
	case len(body) > 20_000:
		return `{"errcode":460101,"errmsg":"message too long, exceed 20000 bytes"}`
	case q.Method != http.MethodPost || err != nil || m.Type != "markdown" || m.Markdown.Title == "" || m.Markdown.Text == "":
		return `{"errcode":40035,"errmsg":"invalid parameters"}`
	case r.answer != "":
		return r.answer
	}
	r.messages = append(r.messages, m)
	return `{"errcode":0,"errmsg":"ok"}`
}

// say makes the robot answer valid messages with this; "" accepts them.
func (r *robot) say(answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// last returns the last accepted message, and their number.
func (r *robot) last() (robotMessage, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.messages) == 0 {
		return robotMessage{}, 0
	}
	return r.messages[len(r.messages)-1], len(r.messages)
}
