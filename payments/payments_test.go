package payments_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/payments"
)

// fake is an API whose references begin with its name. Its answers are written in the references:
// "a:paid", "a:cancelled". The error of "a:error" is errs.
type fake struct {
	name  string
	errs  error
	calls atomic.Int64
	began func(ctx context.Context)

	mu   sync.Mutex
	seen []string
}

func (f *fake) Name() string               { return f.name }
func (f *fake) Owns(reference string) bool { return strings.HasPrefix(reference, f.name+":") }

func (f *fake) answer(ctx context.Context, reference string) (payment.Answer, error) {
	f.calls.Add(1)
	if f.began != nil {
		f.began(ctx)
	}
	f.mu.Lock()
	f.seen = append(f.seen, reference)
	f.mu.Unlock()
	_, answer, _ := strings.Cut(reference, ":")
	switch answer {
	case "panic":
		panic("a mistake")
	case "error":
		return "", f.errs
	}
	return payment.Answer(answer), ctx.Err()
}

func (f *fake) Cancel(ctx context.Context, reference string) (payment.Answer, error) {
	return f.answer(ctx, reference)
}

func (f *fake) Ask(ctx context.Context, reference string) (payment.Answer, error) {
	return f.answer(ctx, reference)
}

// provider returns a Provider of which each order id is its list of references, separated by spaces.
func provider(t *testing.T, logs *bytes.Buffer, apis ...payments.API) *payments.Provider {
	t.Helper()
	p, err := payments.New(payments.Options{APIs: apis, Logger: slog.New(slog.NewTextHandler(logs, nil)),
		References: func(_ context.Context, ids []string) (map[string][]string, error) {
			references := map[string][]string{}
			for _, id := range ids {
				if id != "none" {
					references[id] = strings.Split(strings.TrimSuffix(id, "null"), " ")
				}
			}
			return references, nil
		}})
	must.Do(t, err)
	return p
}

func TestProvider_AnswersForAllPaymentsOfAnOrder(t *testing.T) {
	rows := []struct{ order, cancel, ask string }{
		{"none", "cancelled", "unpaid"},
		{"a:cancelled", "cancelled", "unknown"},
		{"a:unpaid", "unknown", "unpaid"},
		{"a:paid", "paid", "paid"},
		{"a:unknown", "unknown", "unknown"},
		{"a:cancelled b:cancelled", "cancelled", "unknown"},
		{"a:cancelled b:paid", "paid", "paid"},
		{"a:paid b:unknown", "paid", "paid"},
		{"a:paid b:error", "paid", "paid"},
		{"a:cancelled b:unknown", "unknown", "unknown"},
		{"a:cancelled b:error", "unknown", "unknown"},
		{"a:cancelled b:panic", "unknown", "unknown"},
		{"a:cancelled c:cancelled", "unknown", "unknown"}, // nobody owns c
		{"null", "unknown", "unknown"},                    // started, and its id is not known yet
		{"a:cancelled null", "unknown", "unknown"},
		{"a:paid null", "paid", "paid"},
	}
	logs := &bytes.Buffer{}
	a, b := &fake{name: "a"}, &fake{name: "b", errs: errors.New("refused")}
	p := provider(t, logs, a, b)
	var ids []string
	var cancel, ask []payment.Answer
	for _, row := range rows {
		ids, cancel, ask = append(ids, row.order), append(cancel, payment.Answer(row.cancel)), append(ask, payment.Answer(row.ask))
	}
	expect.Same(t, must.Get(p.Cancel(t.Context(), ids))(t), cancel, "Cancel")
	expect.Same(t, must.Get(p.Ask(t.Context(), ids))(t), ask, "Ask")
	for _, want := range []string{"refused", "belongs to no payment provider", "a mistake"} {
		expect.That(t, strings.Contains(logs.String(), want), "the log does not say %q:\n%s", want, logs)
	}
}

// After a payment is paid, the others of the order are cancelled too.
func TestProvider_CancelsAlsoTheOtherPaymentsOfAPaidOrder(t *testing.T) {
	a := &fake{name: "a"}
	_, err := provider(t, &bytes.Buffer{}, a).Cancel(t.Context(), []string{"a:paid a:cancelled"})
	expect.That(t, err == nil && len(a.seen) == 2, "cancelled %v, %v", a.seen, err)
}

func TestProvider_WithoutReferencesThereIsNoAnswer(t *testing.T) {
	a := &fake{name: "a"}
	p := must.Get(payments.New(payments.Options{APIs: []payments.API{a}, References: func(context.Context, []string) (map[string][]string, error) {
		return nil, fmt.Errorf("%w: the database is away", orderclose.ErrUnavailable)
	}}))(t)
	got, err := p.Cancel(t.Context(), []string{"x"})
	expect.That(t, errors.Is(err, orderclose.ErrUnavailable) && strings.Contains(err.Error(), "the database is away") && got == nil && a.calls.Load() <= 0,
		"%v, %v", got, err)
}

func TestProvider_WorksOnEightOrdersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		a := &fake{name: "a", began: func(context.Context) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(100 * time.Millisecond)
			now.Add(-1)
		}}
		ids := strings.Split(strings.Repeat("a:cancelled,", 80), ",")[:80]
		got, err := provider(t, &bytes.Buffer{}, a).Cancel(t.Context(), ids)
		expect.That(t, err == nil && len(got) == 80 && most.Load() == payments.Concurrency, "%d answers, %v, %d at the same time", len(got), err, most.Load())
	})
}

// An API that is unavailable is not called again for the rest of the question, nor until the time that it says.
func TestProvider_LeavesAnUnavailableAPIAlone(t *testing.T) {
	for _, row := range []struct{ after, want time.Duration }{{0, time.Second}, {5 * time.Second, 5 * time.Second}, {time.Hour, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			a, b := &fake{name: "a", errs: &payments.Unavailable{After: row.after, Err: errors.New("too many calls")}}, &fake{name: "b"}
			p := provider(t, &bytes.Buffer{}, a, b)
			ids := strings.Split(strings.Repeat("a:error,", 100), ",")[:100]
			_, err := provider(t, &bytes.Buffer{}, a).Cancel(t.Context(), ids) // the only API
			var u *payments.Unavailable
			expect.That(t, errors.As(err, &u) && errors.Is(err, orderclose.ErrUnavailable) && u.RetryAfter() == row.want &&
				a.calls.Load() <= payments.Concurrency, "%v after %d calls", err, a.calls.Load())
			expect.Equal(t, must.Get(p.Cancel(t.Context(), ids))(t)[0], payment.Unknown, "the answer of one API of two")
			before := a.calls.Load()
			time.Sleep(row.want - time.Millisecond)
			got := must.Get(p.Cancel(t.Context(), []string{"a:cancelled", "b:cancelled"}))(t)
			expect.Same(t, got, []payment.Answer{payment.Unknown, payment.Cancelled}, "the other API answers")
			expect.Equal(t, a.calls.Load(), before, "calls after the pause began")
			time.Sleep(time.Millisecond)
			got = must.Get(p.Cancel(t.Context(), []string{"a:cancelled"}))(t)
			expect.Same(t, got, []payment.Answer{payment.Cancelled}, "after the pause")
		})
	}
}

// An API that gives no answer costs the orders of another one no answer, and soon no time.
func TestProvider_AnAPIThatHangsIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		a := &fake{name: "a", began: func(ctx context.Context) {
			if !healed.Load() {
				<-ctx.Done()
			}
		}}
		b := &fake{name: "b", began: func(context.Context) { time.Sleep(100 * time.Millisecond) }}
		logs := &bytes.Buffer{}
		p := provider(t, logs, a, b)
		ids := append(slices.Repeat([]string{"a:cancelled"}, 40), slices.Repeat([]string{"b:cancelled"}, 40)...)
		began, slow := time.Now(), 0
		for time.Since(began) < 10*time.Minute {
			asked := time.Now()
			for i, answer := range must.Get(p.Cancel(t.Context(), ids))(t) {
				if i >= 40 && answer != payment.Cancelled {
					t.Fatalf("%v after the begin: %q of the API that works", time.Since(began), answer)
				}
			}
			if time.Since(asked) > time.Second {
				slow++
			}
			time.Sleep(500 * time.Millisecond)
		}
		expect.AtMost(t, slow, 20, "questions that took long in ten minutes")
		expect.That(t, strings.Contains(logs.String(), "a: no answer within 2.5s"), "the log names no API:\n%s", logs)
		healed.Store(true)
		time.Sleep(time.Minute)
		expect.Same(t, must.Get(p.Cancel(t.Context(), []string{"a:cancelled"}))(t), []payment.Answer{payment.Cancelled}, "the API that works again")
	})
}

// The answers that came in time are not lost.
func TestProvider_AnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", began: func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}}
		p, began := provider(t, &bytes.Buffer{}, a), time.Now()
		ids := strings.Split(strings.Repeat("a:cancelled,", 24), ",")[:24]
		got, err := p.Cancel(t.Context(), ids)
		cancelled := 0
		for _, answer := range got {
			if answer == payment.Cancelled {
				cancelled++
			} else if answer != payment.Unknown {
				t.Errorf("answer %q", answer)
			}
		}
		took := time.Since(began)
		expect.That(t, err == nil && cancelled == 2*payments.Concurrency && took == payments.QuestionLimit, "%d cancelled in %v, %v", cancelled, took, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		expect.Is(t, expect.Err(p.Cancel(ctx, ids)), context.DeadlineExceeded, "the caller has gone")
	})
}

func TestProvider_OverHTTPTheCloserHearsHowLongToWait(t *testing.T) {
	a := &fake{name: "a", errs: &payments.Unavailable{After: 4500 * time.Millisecond, Err: errors.New("too many calls")}}
	secrets := []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	handler, err := payment.Handler(secrets, provider(t, &bytes.Buffer{}, a))
	must.Do(t, err)
	service := httptest.NewServer(handler)
	defer service.Close()
	closer := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: service.URL, Secrets: secrets}))(t)
	defer closer.Close()
	_, err = closer.Canceler().Cancel(t.Context(), []string{"a:error"})
	var later interface{ RetryAfter() time.Duration }
	expect.That(t, errors.As(err, &later) && later.RetryAfter() == 5*time.Second && strings.Contains(err.Error(), fmt.Sprint(http.StatusServiceUnavailable)),
		"error %v", err)
}

func TestNew_NeedsReferencesAndAPIs(t *testing.T) {
	none := func(context.Context, []string) (map[string][]string, error) { return nil, nil }
	for _, o := range []payments.Options{{}, {References: none}, {APIs: []payments.API{&fake{}}}} {
		_, err := payments.New(o)
		expect.That(t, err != nil, "New(%+v) returned no error", o)
	}
}

func TestSQL_ReadsTheReferencesOfOrders(t *testing.T) {
	db := must.Get(sql.Open("sqlite", "file:references?mode=memory"))(t)
	defer db.Close()
	db.SetMaxOpenConns(1)
	must.Get(db.Exec(`CREATE TABLE payments (order_id TEXT COLLATE NOCASE, session_id TEXT, started INT);
		INSERT INTO payments VALUES ('a', 'cs_1', 1), ('a', 'cs_2 ', 2), ('b', NULL, 3), ('c', '', 4), ('D', 'cs_3', 5), ('it''s', 'cs_4', 6)`))(t)
	references := must.Get(payments.SQL(db, "SELECT order_id, session_id FROM payments WHERE order_id IN (?) ORDER BY started"))(t)
	got, err := references(t.Context(), []string{"a", "b", "c", "it's", "none", "'); DROP TABLE payments; --"})
	want := map[string][]string{"a": {"cs_1", "cs_2"}, "b": {""}, "c": {""}, "it's": {"cs_4"}}
	must.Do(t, err)
	expect.Same(t, got, want, "references")
	expect.Equal(t, len(must.Get(references(t.Context(), nil))(t)), 0, "references without orders")
	// The database says that d and D are equal; for orderclose they are two orders.
	_, err = references(t.Context(), []string{"d"})
	expect.That(t, err != nil && strings.Contains(err.Error(), `order "D"`) && !errors.Is(err, orderclose.ErrUnavailable), "another order: %v", err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Is(t, expect.Err(references(gone, []string{"a"})), orderclose.ErrUnavailable, "the query is cut off")
	for query, says := range map[string]string{
		"SELECT order_id FROM payments WHERE order_id IN (?)":                  "not 1 columns",
		"SELECT session_id, order_id FROM payments WHERE order_id IN (?)":      "let the first column be",
		"SELECT order_id, session_id FROM no_such_table WHERE order_id IN (?)": "no_such_table",
	} {
		references, err := payments.SQL(db, query)
		if err == nil {
			_, err = references(t.Context(), []string{"a", "b"})
		}
		expect.That(t, err != nil && strings.Contains(err.Error(), says), "%s: %v", query, err)
	}
	for _, query := range []string{"", "SELECT 1, 2", "SELECT a, b FROM c WHERE a = ?", "SELECT a, b FROM c WHERE a IN (?) OR d IN (?)"} {
		_, err := payments.SQL(db, query)
		expect.That(t, err != nil, "%q: no error", query)
	}
}
