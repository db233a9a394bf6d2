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
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// cashier is a provider that can cancel payments. An order has one payment, which is open until it is
// paid or cancelled.
type cashier struct {
	asks    func(ids []string) // is called with the ids of each Cancel
	answers map[string]payment.Answer

	mu        sync.Mutex
	paid      map[string]bool
	cancelled map[string]bool
	asked     bool
}

func (c *cashier) Ask(context.Context, []string) ([]payment.Answer, error) {
	c.asked = true
	return nil, errors.New("Ask of a Canceler was called")
}

func (c *cashier) Cancel(_ context.Context, ids []string) ([]payment.Answer, error) {
	if c.asks != nil {
		c.asks(ids)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		switch answer, given := c.answers[id]; {
		case given:
			answers[i] = answer
		case c.paid[id]:
			answers[i] = payment.Paid
		default:
			c.cancelled[id] = true
			answers[i] = payment.Cancelled
		}
	}
	return answers, nil
}

// pay reports whether the payment of an order succeeds.
func (c *cashier) pay(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled[id] {
		return false
	}
	c.paid[id] = true
	return true
}

func newCashier() *cashier {
	return &cashier{paid: map[string]bool{}, cancelled: map[string]bool{}}
}

func TestCancel_ClosesOnlyOrdersWhosePaymentsTheProviderHasCancelled(t *testing.T) {
	c, logs, s := newCashier(), &testkit.LogBuffer{}, &shop{}
	c.answers = map[string]payment.Answer{"unknown": payment.Unknown, "unpaid": payment.Unpaid, "who knows": "who knows"}
	c.paid["paid"] = true
	c.asks = func(ids []string) {
		s.asked = append(s.asked, ids)
		for _, id := range ids {
			expect.Equal(t, s.status(t, id), store.Unpaid, "the status of order %q when its payments are cancelled", id)
		}
	}
	s.open(t, payment.Options{Provider: c, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	ids := []string{"open", "paid", "unknown", "unpaid", "who knows", "paid before", "closed before"}
	for _, id := range ids {
		s.order(t, id, -time.Minute)
	}
	s.order(t, "later", time.Hour)
	must.Get(scenario.OrdersOf(s.Store).Pay(t.Context(), "paid before", "p"))(t)
	must.Get(scenario.OrdersOf(s.Store).Cancel(t.Context(), "closed before"))(t)
	got := s.close(t, append(ids, "later", "nobody's")...)
	want := []string{"closed", "already_paid", "payment_pending", "payment_pending", "payment_pending", "already_paid", "already_closed", "not_due", "not_found"}
	expect.Same(t, got, want, "verdicts")
	expect.Same(t, s.asked, [][]string{{"open", "paid", "unknown", "unpaid", "who knows"}}, "the orders with payments that were cancelled")
	expect.That(t, !c.asked, "the provider was asked")
	if out := logs.String(); !strings.Contains(out, "remove closer.payment.cancel") || !strings.Contains(out, "first=unpaid") {
		t.Errorf("the log does not say what to do about the answer unpaid:\n%s", out)
	}
}

func TestCancel_APauseIsObeyedBefore(t *testing.T) {
	c, s := newCashier(), &shop{}
	s.open(t, payment.Options{Provider: c})
	s.order(t, "a", -time.Minute)
	for _, category := range []string{"book", ""} {
		must.Get(s.Pause(t.Context(), category, time.Hour, "the reason", false))(t)
		out, err := s.asking.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
		if category == "" && !errors.Is(err, orderclose.ErrPaused) || category != "" && (err != nil || out[0].Verdict != orderclose.Paused) || len(c.cancelled) > 0 {
			t.Errorf("with a pause of category %q: %v, %v, and the payments of %v are cancelled", category, out, err, c.cancelled)
		}
	}
}

// The payment stays cancelled when the close fails, and the order is closed by the next try.
func TestCancel_AFailedCloseIsTriedAgain(t *testing.T) {
	fails := fmt.Errorf("%w: read-only", orderclose.ErrUnavailable)
	c, s := newCashier(), &shop{fails: func() error { return fails }}
	s.open(t, payment.Options{Provider: c})
	s.order(t, "a", -time.Minute)
	for range 3 {
		_, err := s.asking.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
		must.That(t, errors.Is(err, orderclose.ErrUnavailable) && c.cancelled["a"], "%v, cancelled: %v", err, c.cancelled)
	}
	fails = nil
	got := s.close(t, "a")
	expect.That(t, got[0] == "closed" && !c.pay("a"), "the order is %s", got[0])
	expect.Equal(t, bisect.MaxBatch(s.asking), 7, "orders in a call, as the store takes them")
}

// Whenever a customer pays, no order is both closed and paid.
func TestCancel_NoPaymentSucceedsAfterTheClose(t *testing.T) {
	const orders = 300
	c, s := newCashier(), &shop{}
	s.open(t, payment.Options{Provider: c, Batch: 7})
	var ids []string
	for i := range orders {
		ids = append(ids, fmt.Sprintf("o-%03d", i))
		s.order(t, ids[i], -time.Second)
	}
	var running sync.WaitGroup
	for worker := range 3 {
		shuffled := func(seed uint64) []string {
			mine := slices.Clone(ids)
			rand.New(rand.NewPCG(uint64(worker), seed)).Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			return mine
		}
		running.Go(func() {
			for part := range slices.Chunk(shuffled(1), 23) {
				s.close(t, part...)
			}
		})
		running.Go(func() { // customers; the callback of every other payment is lost
			for i, id := range shuffled(2)[:orders/3] {
				if c.pay(id) && i%2 == 0 {
					if _, err := scenario.OrdersOf(s.Store).Pay(t.Context(), id, "p"); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	running.Wait()
	counts := map[store.Status]int{}
	for _, id := range ids {
		st, paid := s.status(t, id), c.pay(id) // with one more try to pay
		counts[st]++
		expect.That(t, paid == (st == store.Paid) && !paid == (st == store.Closed), "%s has status %d, and its payment has succeeded: %v", id, st, paid)
	}
	expect.That(t, counts[store.Paid] != 0 && counts[store.Closed] != 0, "the statuses are %v", counts)
}

func cancelAt(t *testing.T, h http.Handler, ids ...string) ([]payment.Answer, error) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	p := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: server.URL, Secrets: secrets}))(t)
	defer p.Close()
	return p.Canceler().Cancel(t.Context(), ids)
}

func TestHTTP_CancelsAtAService(t *testing.T) {
	c := newCashier()
	c.answers = map[string]payment.Answer{"unpaid": payment.Unpaid, "nonsense": "nonsense"}
	c.paid["paid"] = true
	h := must.Get(payment.Handler(secrets, c))(t)
	answers, err := cancelAt(t, h, "open", "paid", "unpaid", "nonsense")
	want := []payment.Answer{payment.Cancelled, payment.Paid, payment.Unpaid, payment.Unknown}
	expect.That(t, err == nil && slices.Equal(answers, want) && !c.asked, "%v, %v; want %v", answers, err, want)
	onlyAsks := must.Get(payment.Handler(secrets, payment.ProviderFunc(func(context.Context, []string) ([]payment.Answer, error) {
		t.Error("the provider was asked instead")
		return nil, nil
	})))(t)
	if _, err := cancelAt(t, onlyAsks, "open"); !errors.Is(err, orderclose.ErrUnavailable) || !strings.Contains(err.Error(), "remove closer.payment.cancel") {
		t.Errorf("a service that only asks: %v", err)
	}
}

// An old service ignores the action. None of its answers closes an order.
func TestHTTP_AServiceThatIgnoresTheActionClosesNoOrder(t *testing.T) {
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"answers":[{"order_id":"a","answer":"unpaid"},{"order_id":"b","answer":"paid"}]}`)
	}))
	defer old.Close()
	p := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: old.URL, Secrets: secrets}))(t)
	defer p.Close()
	for name, row := range map[string]struct {
		provider payment.Provider
		want     []string
	}{
		"cancelling": {p.Canceler(), []string{"payment_pending", "already_paid"}},
		"asking":     {p, []string{"closed", "already_paid"}},
	} {
		s := &shop{}
		s.open(t, payment.Options{Provider: row.provider})
		s.order(t, "a", -time.Minute)
		s.order(t, "b", -time.Minute)
		expect.Same(t, s.close(t, "a", "b"), row.want, "%s", name)
	}
}

// Services in other languages are written by docs/http.md.
func TestHTTP_MatchesTheDocumentation(t *testing.T) {
	data := must.Get(os.ReadFile("../../docs/http.md"))(t)
	block := func(name string) string {
		_, rest, _ := strings.Cut(string(data), "```json "+name+"\n")
		body, _, _ := strings.Cut(rest, "\n```")
		return body
	}
	for name, answers := range map[string][]payment.Answer{"": {payment.Paid, payment.Unpaid}, "cancel ": {payment.Paid, payment.Cancelled}} {
		var sent string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			expect.NoError(t, err)
			sent = string(body)
			io.WriteString(w, block(name+"answer"))
		}))
		p := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: server.URL, Secrets: secrets}))(t)
		call := p.Ask
		if name != "" {
			call = p.Canceler().Cancel
		}
		got, err := call(t.Context(), []string{"ORD-20260301-000017", "ORD-20260301-000018"})
		expect.That(t, err == nil && slices.Equal(got, answers) && sent == block(name+"question"), "%q: sent %s; %v, %v; want %v", name, sent, got, err, answers)
		p.Close()
		server.Close()
	}
	for _, a := range []payment.Answer{payment.Paid, payment.Unpaid, payment.Cancelled, payment.Unknown} {
		expect.That(t, strings.Contains(string(data), "| `"+string(a)+"`"), "the answer %s is not documented", a)
	}
}

// The mapping excludes orders of other tenants: their payments are not cancelled.
func TestCancel_LeavesThePaymentsOfExcludedOrdersAlone(t *testing.T) {
	db := must.Get(sqlite.OpenWith(sqlite.Memory, sqlite.Options{Orders: &mapping.Mapping{
		Orders: "t_order",
		ID:     mapping.Key{Column: "no"},
		Status: mapping.Status{Column: "status", From: mapping.OneOf{mapping.IntValue(0)}, To: mapping.IntValue(2), Paid: []mapping.Value{mapping.IntValue(1)}},
		Due:    mapping.TimeColumn{Column: "due", Type: mapping.UnixMillis},
		Where:  []mapping.Condition{mapping.Is("tenant", mapping.TextValue("ours"))},
	}}))(t)
	t.Cleanup(func() { db.Close() })
	must.Get(db.DB().ExecContext(t.Context(), "CREATE TABLE t_order (no TEXT PRIMARY KEY, status INTEGER, due INTEGER, tenant TEXT)"))(t)
	must.Do(t, db.Migrate(t.Context()))
	due := time.Now().Add(-time.Minute).UnixMilli()
	must.Get(db.DB().ExecContext(t.Context(), "INSERT INTO t_order VALUES ('a', 0, ?, 'ours'), ('b', 0, ?, 'theirs')", due, due))(t)
	c := newCashier()
	checked := must.Get(payment.New(payment.Options{Store: db, Provider: c}))(t)
	s := &shop{Store: db, asking: checked}
	expect.Same(t, s.close(t, "a", "b"), []string{"closed", "excluded"}, "verdicts")
	expect.That(t, c.cancelled["a"] && !c.cancelled["b"] && c.pay("b"), "the payments of %v were cancelled, want those of a alone", c.cancelled)
}
