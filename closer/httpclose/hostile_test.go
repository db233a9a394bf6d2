package httpclose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/signature"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testSecrets = []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	testKeys, _ = signature.Parse(testSecrets)
)

// inBubble runs a test in a synctest bubble, with a service in memory whose handler can be replaced, and a Store for it.
func inBubble(t *testing.T, o Options, test func(t *testing.T, s *Store, serve func(http.HandlerFunc))) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var handler http.HandlerFunc
		l := testkit.Listen()
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			h := handler
			mu.Unlock()
			h(w, r)
		}))
		server.Listener.Close()
		server.Listener = l
		server.Config.ErrorLog = nil
		server.Start()
		defer server.Close()
		o.URL, o.Secrets, o.Transport = "http://shop/close", testSecrets, l.Transport()
		s := must.Get(New(o))(t)
		defer s.Close()
		test(t, s, func(h http.HandlerFunc) {
			mu.Lock()
			defer mu.Unlock()
			handler = h
		})
	})
}

// How the hostile service treats an order.
const (
	answers    = "answers"
	unknown    = "unknown verdict"
	omits      = "never answers it"
	omitsOnce  = "leaves it out once"
	repeats    = "answers it twice"
	disagrees  = "answers it twice, differently"
	breaks     = "500 whenever it is there"
	garbles    = "no JSON whenever it is there"
	floods     = "an endless reply whenever it is there"
	refuses    = "422 whenever it is there"
	hangs      = "no answer whenever it is there"
	toleratesN = "413 beyond 3 orders"
)

var treatments = []string{answers, answers, answers, answers, unknown, omits, omitsOnce, repeats, disagrees, breaks, garbles, floods,
	refuses, hangs, toleratesN}

// faults are what it does to a request, independent of the orders.
var faults = []string{"hang", "slow body", "reset", "cut", "503", "502", "429", "redirect", "401", "404"}

// hostile is a service that violates the protocol in all known ways.
type hostile struct {
	t         *rapid.T
	treatment map[string]string
	verdict   map[string]orderclose.Verdict
	faults    []string // for the next requests; "" is none
	strays    bool

	mu         sync.Mutex
	anyVerdict bool // the service gives a verdict on some order
	left       map[string]bool
	given      map[string][]orderclose.Verdict
	due        map[string]string
	ids        map[string]bool
	bad        []string
}

func (h *hostile) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if err := testKeys.Verify(r.Header, body, time.Now()); err != nil {
		h.bad = append(h.bad, err.Error())
	}
	id := r.Header.Get("webhook-id")
	if h.ids[id] || !strings.HasPrefix(id, "msg_") || strings.Contains(id, ".") {
		h.bad = append(h.bad, "webhook-id "+id) // a service may answer a known id from its store, and the answer may have changed
	}
	h.ids[id] = true
	var q request
	if err := json.Unmarshal(body, &q); err != nil || len(q.Orders) == 0 || q.Path != orderclose.PathPipeline {
		h.bad = append(h.bad, fmt.Sprintf("%s: %v", body, err))
	}
	if len(h.faults) > 0 {
		fault := h.faults[0]
		h.faults = h.faults[1:]
		if fault != "" {
			h.fail(w, r, fault)
			return
		}
	}
	if slices.ContainsFunc(q.Orders, func(o wireOrder) bool { return h.treatment[o.OrderID] == hangs }) {
		h.hang(r)
		return
	}
	h.answer(w, q)
}

// hang waits until the client gives up. Other requests are answered meanwhile.
func (h *hostile) hang(r *http.Request) {
	h.mu.Unlock()
	defer h.mu.Lock()
	<-r.Context().Done()
}

func (h *hostile) fail(w http.ResponseWriter, r *http.Request, fault string) {
	switch fault {
	case "hang":
		h.hang(r)
	case "slow body":
		io.WriteString(w, `{"verdicts":[`)
		w.(http.Flusher).Flush()
		h.hang(r)
	case "reset":
		panic(http.ErrAbortHandler)
	case "cut":
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, `{"verdicts":[`)
	case "redirect":
		http.Redirect(w, r, "http://elsewhere/", http.StatusTemporaryRedirect)
	case "429":
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(429)
	default:
		var status int
		fmt.Sscan(fault, &status)
		http.Error(w, "<html>no</html>", status)
	}
}

func (h *hostile) answer(w http.ResponseWriter, q request) {
	said := reply{}
	give := func(id string, v orderclose.Verdict) {
		now := time.Now()
		h.given[id] = append(h.given[id], v)
		said.Verdicts = append(said.Verdicts, wireVerdict{OrderID: id, Verdict: v, DueAt: writeTime(now.Add(time.Minute)), Now: writeTime(now), Detail: "because"})
	}
	is := func(what string) bool {
		return slices.ContainsFunc(q.Orders, func(o wireOrder) bool { return h.treatment[o.OrderID] == what })
	}
	switch {
	case is(refuses):
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	case is(toleratesN) && len(q.Orders) > 3:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	case is(breaks):
		w.WriteHeader(http.StatusInternalServerError)
		return
	case is(garbles):
		io.WriteString(w, "<html>Welcome!</html>")
		return
	case is(floods):
		w.Write(bytes.Repeat([]byte(" "), replyBytes+len(q.Orders)*replyBytesOrder+1))
		return
	}
	for _, o := range q.Orders {
		h.due[o.OrderID] = o.DueAt
		switch h.treatment[o.OrderID] {
		case unknown:
			give(o.OrderID, "vanished")
		case omits:
		case omitsOnce:
			if h.left[o.OrderID] {
				give(o.OrderID, h.verdict[o.OrderID])
			}
			h.left[o.OrderID] = true
		case repeats:
			give(o.OrderID, h.verdict[o.OrderID])
			give(o.OrderID, h.verdict[o.OrderID])
		case disagrees:
			give(o.OrderID, orderclose.Closed)
			give(o.OrderID, orderclose.NotFound)
		default:
			give(o.OrderID, h.verdict[o.OrderID])
		}
	}
	if h.strays {
		give("nobody's", orderclose.Closed)
	}
	body, _ := json.Marshal(said)
	w.Write(body)
}

// An outcome is never one that the service did not give, no request is lost, and the outcomes have the order of the requests.
func TestStore_WithAHostileService(t *testing.T) {
	inBubble(t, Options{Batch: 16}, func(t *testing.T, s *Store, serve func(http.HandlerFunc)) {
		// Hides T.Deadline, which has no meaning in a bubble.
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
			time.Sleep(10 * time.Minute) // closes a breaker that the last round opened
			h := &hostile{t: t, ids: map[string]bool{}, treatment: map[string]string{}, verdict: map[string]orderclose.Verdict{},
				left: map[string]bool{}, given: map[string][]orderclose.Verdict{}, due: map[string]string{}, strays: rapid.Bool().Draw(t, "strays")}
			kinds := []orderclose.Verdict{orderclose.Closed, orderclose.AlreadyPaid, orderclose.AlreadyClosed, orderclose.NotDue,
				orderclose.NotFound, orderclose.PaymentPending, orderclose.Contended, orderclose.Failed}
			n := rapid.IntRange(1, 40).Draw(t, "orders")
			var requests []orderclose.CloseRequest
			for i := range n {
				id := fmt.Sprintf("o-%d \"é\"", i)
				h.treatment[id] = rapid.SampledFrom(treatments).Draw(t, id)
				h.verdict[id] = rapid.SampledFrom(kinds).Draw(t, "verdict")
				due := time.Now().Add(-time.Duration(i) * time.Second)
				for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "times") {
					requests = append(requests, orderclose.CloseRequest{OrderID: id, Due: due, CreatedAt: due.Add(-time.Hour)})
					due = due.Add(time.Millisecond)
				}
			}
			requests = rapid.Permutation(requests).Draw(t, "requests")
			h.faults = rapid.SliceOfN(rapid.SampledFrom(append(faults, "", "", "", "", "")), 0, 6).Draw(t, "faults")
			h.knowOthers()
			serve(h.serve)
			h.check(t, requests, h.outcomes(t, s, requests))
			must.That(t, len(h.bad) == 0, "bad requests: %v", h.bad)
		})
	})
}

// outcomes asks until all orders have a verdict, as the closer does. It returns nil if no order got a verdict, so that no order can be blamed.
func (h *hostile) outcomes(t *rapid.T, s *Store, requests []orderclose.CloseRequest) []orderclose.Outcome {
	search := &bisect.Search{}
	all, open := make([]orderclose.Outcome, len(requests)), make([]int, len(requests))
	for i := range open {
		open[i] = i
	}
	for n := range maxRounds {
		var part []orderclose.CloseRequest
		if n >= 10 && h.anyVerdict {
			part = h.another(n) // another due order shows that the service works
		}
		extra := len(part)
		for _, i := range open {
			part = append(part, requests[i])
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		outcomes, err := search.Close(ctx, s, orderclose.PathPipeline, part)
		cancel()
		var left []int
		for j, i := range open {
			if all[i] = outcomes[extra+j]; all[i].Verdict == "" || all[i].Verdict == orderclose.Contended && errors.Is(all[i].Err, orderclose.ErrUnavailable) {
				left = append(left, i)
			}
		}
		complete := !slices.ContainsFunc(outcomes, func(o orderclose.Outcome) bool { return o.Verdict == "" })
		must.That(t, complete == (err == nil) && (err == nil || errors.Is(err, orderclose.ErrUnavailable)), "%+v, and the error is %v", outcomes, err)
		if open = left; len(open) == 0 {
			return all
		}
		time.Sleep(10 * time.Second)
	}
	return nil
}

// another returns an order that the service knows and gives a verdict on.
func (h *hostile) another(n int) []orderclose.CloseRequest {
	return []orderclose.CloseRequest{{OrderID: fmt.Sprint("another-", n)}}
}

// knowOthers adds the orders of another to the service. Call it before the service is
// asked: a request that the store has given up may still be answered later.
func (h *hostile) knowOthers() {
	h.anyVerdict = h.answersAny()
	for n := range maxRounds {
		id := fmt.Sprint("another-", n)
		h.treatment[id], h.verdict[id] = answers, orderclose.AlreadyPaid
	}
}

// maxRounds is how often the orders of a test are asked for.
const maxRounds = 60

// answersAny reports whether the service gives a verdict on any order.
func (h *hostile) answersAny() bool {
	for _, what := range h.treatment {
		if slices.Contains([]string{answers, unknown, repeats, disagrees, toleratesN}, what) {
			return true
		}
	}
	return false
}

func (h *hostile) check(t *rapid.T, requests []orderclose.CloseRequest, outcomes []orderclose.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, due := range h.due {
		latest := time.Time{}
		for _, r := range requests {
			if r.OrderID == id && r.Due.After(latest) {
				latest = r.Due
			}
		}
		must.That(t, due == writeDue(latest), "order %s was asked for with due %s, want the latest, %v", id, due, latest)
	}
	if outcomes == nil {
		must.That(t, !h.anyVerdict, "no order is blamed although the treatments are %v", h.treatment)
		return
	}
	must.That(t, len(outcomes) == len(requests), "%d outcomes for %d requests", len(outcomes), len(requests))
	for i, o := range outcomes {
		id := requests[i].OrderID
		must.That(t, o.OrderID == id, "outcome %d is of %q, want %q", i, o.OrderID, id)
		h.checkOne(t, o)
	}
}

func (h *hostile) checkOne(t *rapid.T, o orderclose.Outcome) {
	must.That(t, (o.Verdict == orderclose.Failed || o.Verdict == orderclose.Contended) == (o.Err != nil), "%+v: want a cause if and only if it failed", o)
	switch what := h.treatment[o.OrderID]; what {
	case answers, repeats, toleratesN:
		if o.Verdict == orderclose.Failed && errors.Is(o.Err, orderclose.ErrUnavailable) {
			return // a fault of the service that hit this order alone: it uses up an attempt
		}
		if o.Verdict != h.verdict[o.OrderID] && !(h.verdict[o.OrderID] == orderclose.Closed && o.Verdict == orderclose.AlreadyClosed) {
			t.Fatalf("%+v: the service said %s", o, h.verdict[o.OrderID])
		}
	case omitsOnce:
		if o.Verdict != orderclose.Failed && !slices.Contains(h.given[o.OrderID], o.Verdict) && o.Verdict != orderclose.AlreadyClosed {
			t.Fatalf("%+v: the service said %v", o, h.given[o.OrderID])
		}
	default:
		must.That(t, o.Verdict == orderclose.Failed, "%+v, but the service: %s", o, what)
	}
}
