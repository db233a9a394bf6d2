package httpclose

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestOutcome(t *testing.T) {
	at := func(d time.Duration) string { return writeTime(noon.Add(d)) }
	for _, row := range []struct {
		name    string
		due     time.Duration // of the request; the local time is noon
		v       wireVerdict
		verdict orderclose.Verdict
		left    time.Duration // expected Remaining
		err     string
	}{
		{"closed", -time.Second, wireVerdict{Verdict: "closed", Now: at(-time.Millisecond)}, orderclose.Closed, -999 * time.Millisecond, ""},
		{"closed, without now", -time.Second, wireVerdict{Verdict: "closed"}, orderclose.Closed, -time.Second, ""},
		{"closed, and the local clock is behind", time.Second, wireVerdict{Verdict: "closed"}, orderclose.Closed, 0, ""},
		{"closed early by its own clock", time.Second, wireVerdict{Verdict: "closed", Now: at(0)}, orderclose.Closed, time.Second, ""},
		{"closed, with another due_at", -time.Second, wireVerdict{Verdict: "closed", DueAt: at(-time.Minute), Now: at(0)}, orderclose.Closed, -time.Minute, ""},
		{"closed, with invalid times", -time.Second, wireVerdict{Verdict: "closed", DueAt: "noon", Now: "now"}, orderclose.Closed, -time.Second, ""},
		{"not due", 0, wireVerdict{Verdict: "not_due", DueAt: at(time.Hour), Now: at(time.Minute)}, orderclose.NotDue, 59 * time.Minute, ""},
		{"not due, without now", 0, wireVerdict{Verdict: "not_due", DueAt: at(time.Hour)}, orderclose.NotDue, time.Hour, ""},
		{"not due for a millisecond", 0, wireVerdict{Verdict: "not_due", DueAt: at(time.Millisecond), Now: at(0)}, orderclose.NotDue, time.Second, ""},
		{"not due a moment ago", 0, wireVerdict{Verdict: "not_due", DueAt: at(-time.Millisecond), Now: at(0)}, orderclose.NotDue, time.Second, ""},
		{"not due an hour ago", 0, wireVerdict{Verdict: "not_due", DueAt: at(-time.Hour), Now: at(0)}, orderclose.Failed, -time.Hour, "but due_at is"},
		{"not due, by a clock that is behind", -4 * time.Minute, wireVerdict{Verdict: "not_due", DueAt: at(-4 * time.Minute),
			Now: at(-4*time.Minute - 8*time.Second)}, orderclose.NotDue, 8 * time.Second, ""},
		{"not due four minutes ago, without now", 0, wireVerdict{Verdict: "not_due", DueAt: at(-4 * time.Minute)}, orderclose.NotDue, time.Second, ""},
		{"not due, from a cache", -6 * time.Minute, wireVerdict{Verdict: "not_due", DueAt: at(-6 * time.Minute), Now: at(-6*time.Minute - 8*time.Second)},
			orderclose.Failed, 8 * time.Second, "which is 6m0s ago"},
		{"not due, without due_at", 0, wireVerdict{Verdict: "not_due"}, orderclose.Failed, 0, "send due_at"},
		{"not due, with an invalid due_at", 0, wireVerdict{Verdict: "not_due", DueAt: "teatime"}, orderclose.Failed, 0, "not RFC 3339"},
		{"pending", 0, wireVerdict{Verdict: "payment_pending"}, orderclose.PaymentPending, 0, ""},
		{"failed", 0, wireVerdict{Verdict: "failed", Detail: "no stock row"}, orderclose.Failed, 0, "the service says: no stock row"},
		{"failed with a long detail", 0, wireVerdict{Verdict: "failed", Detail: strings.Repeat("é", 1000)}, orderclose.Failed, 0, "…"},
		{"failed without a detail", 0, wireVerdict{Verdict: "failed"}, orderclose.Failed, 0, "gave no detail"},
		{"contended", 0, wireVerdict{Verdict: "contended"}, orderclose.Contended, 0, "gave no detail"},
		{"an unknown verdict", 0, wireVerdict{Verdict: "Closed"}, orderclose.Failed, 0, `unknown verdict, "Closed"`},
	} {
		r := orderclose.CloseRequest{OrderID: "a", Due: noon.Add(row.due)}
		o := outcome(r, row.v, noon)
		text := ""
		if o.Err != nil {
			text = o.Err.Error()
		}
		if o.OrderID != "a" || o.Verdict != row.verdict || o.Remaining() != row.left || (row.err == "") != (text == "") ||
			!strings.Contains(text, row.err) || len(text) > 1100 {
			t.Errorf("%s: %+v, %v left; want %s, %v left, %q", row.name, o, o.Remaining(), row.verdict, row.left, row.err)
		}
	}
	expect.Equal(t, outcome(orderclose.CloseRequest{OrderID: "a"}, wireVerdict{Verdict: "closed"}, noon).Remaining(), 0, "the time left without a due time")
}

// Services in other languages are written by docs/http.md.
func TestWire_MatchesTheDocumentation(t *testing.T) {
	data := must.Get(os.ReadFile("../../docs/http.md"))(t)
	block := func(name string) string {
		_, rest, _ := strings.Cut(string(data), "```json "+name+"\n")
		body, _, _ := strings.Cut(rest, "\n```")
		return body
	}
	due := noon.Add(5*time.Minute - 999*time.Microsecond) // rounded up, never down
	order := orderclose.CloseRequest{OrderID: "ORD-20260301-000017", CreatedAt: noon, Due: due}
	got, err := json.Marshal(request{Path: orderclose.PathPipeline, Orders: []wireOrder{toWire(order)}})
	expect.Same(t, string(got), block("request"), "the request")
	expect.NoError(t, err)
	outcome := orderclose.Outcome{OrderID: order.OrderID, Verdict: orderclose.Closed, Due: due, At: noon.Add(5*time.Minute + 12*time.Millisecond)}
	got, err = json.Marshal(toReply([]orderclose.Outcome{outcome}))
	expect.Same(t, string(got), block("reply"), "the reply")
	expect.NoError(t, err)
	for _, v := range []orderclose.Verdict{orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed, orderclose.NotDue,
		orderclose.PaymentPending, orderclose.Contended, orderclose.NotFound, orderclose.Failed} {
		expect.That(t, strings.Contains(string(data), "| `"+string(v)+"` |"), "the verdict %s is not documented", v)
	}
}

func TestStore_NoVerdictOnAnyOrderIsTheServicesFault(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"500":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"html":    func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>maintenance</html>") },
		"nothing": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") },
		"null":    func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "null") },
		"204":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"strays": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"verdicts":[{"order_id":"x","verdict":"closed"}]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, s *Store, serve func(http.HandlerFunc)) {
				calls := 0
				serve(func(w http.ResponseWriter, r *http.Request) { calls++; handler(w, r) })
				search := &bisect.Search{}
				for again, n := range []int{1, 2, 200, 200} {
					calls = 0
					_, err := search.Close(t.Context(), s, orderclose.PathPipeline, requestsOf(n))
					expect.That(t, errors.Is(err, orderclose.ErrUnavailable) && calls <= 12 && (again != 3 || calls <= 1), "%d orders: %v after %d calls", n, err, calls)
				}
			})
		})
	}
}

func requestsOf(n int) []orderclose.CloseRequest {
	requests := make([]orderclose.CloseRequest, n)
	for i := range requests {
		requests[i] = orderclose.CloseRequest{OrderID: fmt.Sprint("o-", i), Due: time.Now()}
	}
	return requests
}

// An order that breaks the service alone is blamed once another order has got its
// verdict meanwhile, and not before.
func TestStore_AnOrderThatBreaksTheServiceAloneIsFoundByVerdictsOnOthers(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *Store, serve func(http.HandlerFunc)) {
		serve(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "poison") {
				w.WriteHeader(500)
				return
			}
			io.WriteString(w, `{"verdicts":[{"order_id":"good","verdict":"already_paid"}]}`)
		})
		search := &bisect.Search{}
		poison := []orderclose.CloseRequest{{OrderID: "poison"}}
		for range 20 {
			_, err := search.Close(t.Context(), s, orderclose.PathPipeline, poison)
			must.That(t, errors.Is(err, orderclose.ErrUnavailable), "%v, although no other order got a verdict", err)
		}
		must.Get(search.Close(t.Context(), s, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "good"}}))(t)
		out, err := search.Close(t.Context(), s, orderclose.PathPipeline, poison)
		must.That(t, err == nil && out[0].Verdict == orderclose.Failed, "%v, %v; want Failed", out, err)
		_, err = search.Close(t.Context(), s, orderclose.PathPipeline, poison)
		must.That(t, errors.Is(err, orderclose.ErrUnavailable), "%v: its next failure is another", err)
		serve(func(w http.ResponseWriter, _ *http.Request) { // is unavailable after a reply without o-1
			serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
			io.WriteString(w, `{"verdicts":[{"order_id":"o-0","verdict":"closed"}]}`)
		})
		out, err = s.CloseOrders(t.Context(), orderclose.PathPipeline, requestsOf(2))
		must.That(t, err == nil && out[1].Verdict == orderclose.Contended && errors.Is(out[1].Err, orderclose.ErrUnavailable), "%+v, %v", out, err)
	})
}

// The error of a service that hangs names its two causes once, and so does that of the open breaker.
func TestStore_ErrorsNameEachCauseOnce(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, s *Store, serve func(http.HandlerFunc)) {
		serve(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the client has gone
			<-r.Context().Done()
		})
		search := &bisect.Search{}
		for range 6 {
			_, err := search.Close(t.Context(), s, orderclose.PathPipeline, requestsOf(3))
			must.That(t, err != nil, "no error")
			for _, cause := range []error{orderclose.ErrUnavailable, httpcall.ErrTimeout} {
				expect.Equal(t, strings.Count(err.Error(), cause.Error()), 1, "times that %q is in %v", cause, err)
			}
		}
	})
}
