package payment_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A CheckedStore passes Probe on to its store.
var _ bisect.Prober = (*payment.CheckedStore)(nil)

// shop is a database with a provider in front of its closes.
type shop struct {
	*store.Store
	asking *payment.CheckedStore

	fails func() error // the error of the next close, if any; set it before open

	mu    sync.Mutex
	asked [][]string
}

// failingStore is a database whose closes fail, and which takes seven orders in a call.
type failingStore struct {
	*store.Store
	fails func() error
}

func (failingStore) MaxBatch() int { return 7 }

func (s failingStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if err := s.fails(); err != nil {
		return nil, err
	}
	return s.Store.CloseOrders(ctx, path, requests)
}

func newShop(t *testing.T, answer func(ctx context.Context, id string) (payment.Answer, error), o payment.Options) *shop {
	t.Helper()
	s := &shop{}
	o.Provider = payment.ProviderFunc(func(ctx context.Context, ids []string) ([]payment.Answer, error) {
		s.mu.Lock()
		s.asked = append(s.asked, ids)
		s.mu.Unlock()
		answers := make([]payment.Answer, len(ids))
		for i, id := range ids {
			var err error
			if answers[i], err = answer(ctx, id); err != nil {
				return nil, err
			}
		}
		return answers, nil
	})
	s.open(t, o)
	return s
}

// open opens the database of a shop with the provider of o in front of its closes.
func (s *shop) open(t *testing.T, o payment.Options) {
	t.Helper()
	db, err := sqlite.Open(sqlite.Memory, nil)
	must.Do(t, err)
	t.Cleanup(func() { db.Close() })
	must.Do(t, db.Migrate(t.Context()))
	s.Store, o.Store = db, db
	if s.fails != nil {
		o.Store = failingStore{db, s.fails}
	}
	if s.asking, err = payment.New(o); err != nil {
		t.Fatal(err)
	}
}

func (s *shop) order(t *testing.T, id string, in time.Duration) {
	t.Helper()
	due := time.Now().Add(in).Truncate(time.Millisecond)
	must.Do(t, scenario.OrdersOf(s.Store).CreateOrder(t.Context(), orderclose.Order{ID: id, Category: "book", CreatedAt: due.Add(-time.Hour), Due: due}, nil))
}

func (s *shop) close(t *testing.T, ids ...string) (verdicts []string) {
	t.Helper()
	requests := make([]orderclose.CloseRequest, len(ids))
	for i, id := range ids {
		requests[i].OrderID = id
	}
	outcomes := must.Get(bisect.Bisect(t.Context(), s.asking, orderclose.PathSweep, requests))(t)
	for i, o := range outcomes {
		expect.Equal(t, o.OrderID, ids[i], "the order of outcome %d", i)
		verdicts = append(verdicts, string(o.Verdict))
	}
	return verdicts
}

func (s *shop) status(t *testing.T, id string) (st store.Status) {
	t.Helper()
	must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT status FROM orders WHERE id = ?", id).Scan(&st))
	return st
}

func byName(_ context.Context, id string) (payment.Answer, error) {
	for _, a := range []payment.Answer{payment.Paid, payment.Unpaid, "who knows"} {
		if id == string(a) || id == string(a)+"-2" {
			return a, nil
		}
	}
	return payment.Unknown, nil
}

func TestAsking_AsksAboutUnpaidDueOrdersAndAppliesTheAnswers(t *testing.T) {
	s := newShop(t, byName, payment.Options{})
	for _, id := range []string{"paid", "paid-2", "unpaid", "unpaid-2", "unknown", "who knows", "paid before", "closed before"} {
		s.order(t, id, -time.Minute)
	}
	s.order(t, "later", time.Hour)
	must.Get(scenario.OrdersOf(s.Store).Pay(t.Context(), "paid before", "p"))(t)
	must.Get(scenario.OrdersOf(s.Store).Cancel(t.Context(), "closed before"))(t)
	got := s.close(t, "unknown", "unpaid", "paid", "later", "nobody's", "paid before", "closed before", "who knows", "unpaid-2", "paid-2", "unpaid", "paid")
	want := []string{"payment_pending", "closed", "already_paid", "not_due", "not_found", "already_paid", "already_closed",
		"payment_pending", "closed", "already_paid", "already_closed", "already_paid"}
	expect.Same(t, got, want, "verdicts")
	expect.Same(t, s.asked, [][]string{{"paid", "paid-2", "unknown", "unpaid", "unpaid-2", "who knows"}}, "the provider was asked for")
	for id, want := range map[string]store.Status{
		"paid": store.Paid, "unpaid": store.Closed, "unknown": store.Unpaid, "who knows": store.Unpaid, "later": store.Unpaid,
	} {
		expect.Equal(t, s.status(t, id), want, "the status of order %q", id)
	}
	s.asked = nil
	s.close(t, "paid", "unpaid", "paid before", "later")
	expect.That(t, len(s.asked) == 0, "the provider was asked for %v, which are settled or not due", s.asked)
}

func TestAsking_WithoutAnAnswerChangesNothingAndPausesCalls(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"hangs":    func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"is away":  func(context.Context) error { return fmt.Errorf("%w: refused", orderclose.ErrUnavailable) },
		"is wrong": func(context.Context) error { return errors.New("no JSON") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := true
				s := newShop(t, func(ctx context.Context, id string) (payment.Answer, error) {
					if broken {
						return "", fail(ctx)
					}
					return payment.Unpaid, nil
				}, payment.Options{})
				s.order(t, "a", -time.Minute)
				for range 20 {
					if got := s.close(t, "a"); got[0] != "payment_pending" {
						t.Fatal(got)
					}
				}
				expect.That(t, name == "is wrong" || len(s.asked) <= 5, "the provider was asked %d times in a row", len(s.asked))
				expect.Equal(t, s.status(t, "a"), store.Unpaid, "the status of the order")
				broken = false
				time.Sleep(time.Minute)
				expect.Equal(t, s.close(t, "a")[0], "closed", "the verdict when the provider answers again")
			})
		})
	}
}

// A provider that only says unknown is as good as one that is down, for as long as it is asked.
func TestFailing_SinceEachAnswerWasUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, byName, payment.Options{})
		for _, id := range []string{"unknown", "who knows", "unpaid"} {
			s.order(t, id, -time.Minute)
		}
		begin := time.Now()
		for _, step := range []struct {
			ids   []string
			fails bool
		}{{nil, false}, {[]string{"unknown"}, true}, {[]string{"unknown", "who knows"}, true}, {[]string{"unknown", "unpaid"}, false}, {[]string{"unknown"}, true}} {
			s.close(t, step.ids...)
			since, cause := s.asking.Failing()
			expect.That(t, step.fails == (cause == "the answer unknown") && step.fails == !since.IsZero(), "after %v: %v %q", step.ids, since, cause)
			expect.That(t, since.IsZero() || len(step.ids) < 2 || since.Equal(begin), "after %v: since %v, want %v", step.ids, since, begin)
			time.Sleep(time.Second)
			if len(step.ids) == 0 {
				begin = time.Now()
			}
		}
		time.Sleep(10 * time.Minute)
		since, _ := s.asking.Failing()
		expect.That(t, since.IsZero(), "nobody has asked for ten minutes: since %v", since)
	})
}

// The first change of an order wins, and an order that the provider calls paid is
// never closed.
// The order stays pending, as after an error of the provider.
func TestAsking_APanicOfTheProviderKeepsOnlyItsOrderPending(t *testing.T) {
	logs := &testkit.LogBuffer{}
	s := newShop(t, func(ctx context.Context, id string) (payment.Answer, error) {
		if id == "poison" {
			panic("no such payment")
		}
		return payment.Unpaid, nil
	}, payment.Options{Logger: slog.New(slog.NewTextHandler(logs, nil))})
	for _, id := range []string{"a", "poison", "b", "c"} {
		s.order(t, id, -time.Minute)
	}
	expect.Same(t, s.close(t, "a", "poison", "b", "c"), []string{"closed", "payment_pending", "closed", "closed"}, "verdicts")
	out := logs.String()
	expect.That(t, strings.Count(out, "stack=") == 1 && strings.Contains(out, "payment_test.go"), "want one line with the stack:\n%s", out)
}

func TestAsking_PaymentsRaceWithCloses(t *testing.T) {
	const orders = 300
	s := newShop(t, func(_ context.Context, id string) (payment.Answer, error) {
		var n int
		fmt.Sscanf(id, "o-%d", &n)
		return []payment.Answer{payment.Unpaid, payment.Paid, payment.Unknown}[n%3], nil
	}, payment.Options{Batch: 7})
	var ids []string
	for i := range orders {
		ids = append(ids, fmt.Sprintf("o-%d", i))
		s.order(t, ids[i], -time.Second)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	paid, said := map[string]bool{}, map[string][]string{}
	for worker := range 4 {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			mine := slices.Clone(ids)
			random.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			for part := range slices.Chunk(mine, 23) {
				verdicts := s.close(t, part...)
				mu.Lock()
				for i, v := range verdicts {
					said[part[i]] = append(said[part[i]], v)
				}
				mu.Unlock()
			}
		})
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 2))
			for range orders / 4 {
				id := ids[random.IntN(orders)]
				answer, err := scenario.OrdersOf(s.Store).Pay(t.Context(), id, "p")
				expect.NoError(t, err)
				mu.Lock()
				paid[id] = paid[id] || answer == shopdb.AnswerPaid
				mu.Unlock()
			}
		})
	}
	running.Wait()
	for i, id := range ids {
		closes := 0
		for _, v := range said[id] {
			if v == "closed" {
				closes++
			}
		}
		st := s.status(t, id)
		switch {
		case closes > 1, closes == 1 != (st == store.Closed), paid[id] && st != store.Paid,
			i%3 != 0 && st == store.Closed, i%3 == 0 && st == store.Unpaid, i%3 == 1 && st != store.Paid:
			t.Errorf("%s has status %d, paid by the shop %v, verdicts %v", id, st, paid[id], said[id])
		}
	}
}

var secrets = []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}

func TestHTTP_AsksAServiceWithHandler(t *testing.T) {
	h := must.Get(payment.Handler(secrets, payment.ProviderFunc(func(_ context.Context, ids []string) ([]payment.Answer, error) {
		answers := make([]payment.Answer, len(ids))
		for i, id := range ids {
			answers[i] = payment.Answer(id)
		}
		return answers, nil
	})))(t)
	answers, err := ask(t, h, secrets, "paid", "unpaid", "unknown", "nonsense")
	want := []payment.Answer{payment.Paid, payment.Unpaid, payment.Unknown, payment.Unknown}
	expect.That(t, err == nil && slices.Equal(answers, want), "%v, %v; want %v", answers, err, want)
	expect.Is(t, expect.Err(ask(t, h, []string{"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ="}, "paid")), orderclose.ErrUnavailable, "with another secret")
}

func TestHTTP_TreatsContradictoryAnswersAsUnknown(t *testing.T) {
	for name, row := range map[string]struct {
		body string
		want []payment.Answer
	}{
		"strays":  {`{"answers":[{"order_id":"x","answer":"paid"},{"order_id":"b","answer":"unpaid"}]}`, []payment.Answer{payment.Unknown, payment.Unpaid}},
		"repeats": {`{"answers":[{"order_id":"a","answer":"paid"},{"order_id":"a","answer":"paid"}]}`, []payment.Answer{payment.Paid, payment.Unknown}},
		"contradicts": {`{"answers":[{"order_id":"a","answer":"paid"},{"order_id":"a","answer":"unpaid"},{"order_id":"a","answer":"unpaid"}]}`,
			[]payment.Answer{payment.Unknown, payment.Unknown}},
		"other case":   {`{"answers":[{"order_id":"A","answer":"paid"},{"order_id":"b","answer":"PAID"}]}`, []payment.Answer{payment.Unknown, payment.Unknown}},
		"says nothing": {`{}`, []payment.Answer{payment.Unknown, payment.Unknown}},
		"no JSON":      {`<html>`, nil},
	} {
		answers, err := ask(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, row.body) }), secrets, "a", "b")
		expect.That(t, slices.Equal(answers, row.want) && (err != nil) == (row.want == nil), "service that %s: %v, %v; want %v", name, answers, err, row.want)
	}
}

func ask(t *testing.T, h http.Handler, secrets []string, ids ...string) ([]payment.Answer, error) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	p := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: server.URL, Secrets: secrets}))(t)
	defer p.Close()
	return p.Ask(t.Context(), ids)
}

// The provider is not asked about orders that no answer would close.
func TestAsking_APausedCategoryIsNotAskedAbout(t *testing.T) {
	s := newShop(t, byName, payment.Options{})
	s.order(t, "unpaid", -time.Minute)
	must.Get(s.Pause(t.Context(), "book", time.Hour, "the reason", false))(t)
	if got := s.close(t, "unpaid"); got[0] != "paused" || len(s.asked) > 0 {
		t.Errorf("the verdict is %s, and the provider was asked for %v", got[0], s.asked)
	}
	must.Get(s.Resume(t.Context(), "book"))(t)
	expect.Equal(t, s.close(t, "unpaid")[0], "closed", "the verdict after the pause")
}

// The provider hangs or fails on it. The next time it is asked for alone, and delays
// no other order.
func TestAsking_AnOrderWithoutAnAnswerDoesNotKeepOthersPending(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"fails": func(context.Context) error { return errors.New("bad id") },
	} {
		for _, bad := range [][]string{{"o-005"}, {"o-000", "o-099"}, {"o-007", "o-013", "o-014", "o-050", "o-051"}} {
			t.Run(fmt.Sprint(name, len(bad)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					isBad := map[string]bool{}
					for _, id := range bad {
						isBad[id] = true
					}
					s := newShop(t, func(ctx context.Context, id string) (payment.Answer, error) {
						if isBad[id] {
							return "", fail(ctx)
						}
						return payment.Unpaid, nil
					}, payment.Options{})
					var ids []string
					for i := range 120 {
						ids = append(ids, fmt.Sprintf("o-%03d", i))
						s.order(t, ids[i], -time.Minute)
					}
					for range 8 {
						began := time.Now()
						s.close(t, ids...)
						expect.AtMost(t, time.Since(began), time.Minute, "the time of a close")
						time.Sleep(time.Minute) // the breaker may be open
					}
					for _, id := range ids {
						if st := s.status(t, id); (st == 0) == isBad[id] {
							continue
						}
						t.Errorf("order %s: status %d, bad: %v", id, s.status(t, id), isBad[id])
					}
					s.asked = nil
					s.close(t, ids...)
					expect.That(t, len(s.asked) <= len(bad), "in the last close %d questions were asked for %d orders", len(s.asked), len(bad))
				})
			})
		}
	}
}

// Each failure might be the fault of one order.
func TestAsking_AFailingProviderIsAskedOnlyAFewTimes(t *testing.T) {
	s := newShop(t, func(context.Context, string) (payment.Answer, error) { return "", errors.New("500") }, payment.Options{})
	var ids []string
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("o-%03d", i))
		s.order(t, ids[i], -time.Minute)
	}
	for again := range 3 {
		s.asked = nil
		for _, v := range s.close(t, ids...) {
			if v != string(orderclose.PaymentPending) {
				t.Fatal(v)
			}
		}
		most := 1 // the provider counts as down
		if again == 0 {
			most = 2 + 3*bisect.LaneCalls + 2 // others begin until the third order has failed alone
		}
		expect.AtMost(t, len(s.asked), most, "questions")
	}
}
