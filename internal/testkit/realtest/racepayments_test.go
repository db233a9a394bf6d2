package realtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/shoplocks"
	"github.com/orderclose/orderclose/pipeline"
)

// raceRecheck are the steps of rechecks in a race. A payment succeeds two seconds after the close at most, so
// the last step finds it, also on a machine that stands still for a while.
var raceRecheck = []time.Duration{time.Second, 4 * time.Second, 25 * time.Second}

// Payments succeed within half a second of the close of their orders. Two closers, sweeps and reads
// close the orders at a provider that is slow, fails, answers late and loses answers. The database and
// the provider's own ledger say afterwards whether money was lost. make race-payments plays 10,000 orders.
func TestReal_PaymentsRaceWithTheClose(t *testing.T) { eachDatabase(t, racePayments) }

func racePayments(t *testing.T, servers environ.Servers) {
	orders := inRing(100, 300)
	if n, err := strconv.Atoi(os.Getenv("RACE_PAYMENTS")); err == nil {
		orders = n
	}
	r := newRig(t, servers)
	r.disturbed = true // sweeps and reads close orders before the pipeline
	p := &racedProvider{ledger: map[string]*racedOrder{}, faults: map[string]int{}, answers: map[payment.Answer]int{}}
	openings := r.newOpenings(p)
	service := r.paymentService(p)
	r.env = append(r.env, environ.EnvPaymentSecret+"="+serviceSecret)
	// Another process asks again: in the file, a step has a minute at least.
	r.configure(fmt.Sprintf("closer: {payment: {url: %q, batch: 50, cancel: true, recheck: []}}\n", service.URL))
	r.start("relay", "closer-1", "closer-2")
	stop := r.raceCompensator()
	seed := raceSeed(t)
	shop := &racingShop{rig: r, provider: p, openings: openings, random: rand.New(rand.NewPCG(seed, seed))}
	shop.db = must.Get(shoplocks.Open(r.servers.DSN))(t)
	t.Cleanup(func() { shop.db.Close() })
	r.shop.OnOrder = shop.created
	reading, read := context.WithCancel(t.Context())
	readers := shop.read(reading, service.URL)

	steps := scenario.Plan(scenario.Spec{Seed: seed, Orders: orders, Over: max(5*time.Second, time.Duration(orders)*15*time.Millisecond), SKUs: skus,
		Categories: categories})
	for i := range steps {
		if steps[i].Fate != scenario.Unpublished { // a sweep finds these
			steps[i].Fate = scenario.Unpaid
		}
	}
	expect.NoError(t, r.shop.Run(t.Context(), time.Now(), steps))
	shop.customers.Wait()
	r.settle()
	read()
	readers.Wait()
	p.calm.Store(true)
	r.until("all closed orders were asked about again", func() bool {
		until, _, err := r.store.Rechecked(t.Context(), r.cfg.Topics.Close, raceRecheck[2])
		must.Do(t, err)
		return r.count("SELECT COUNT(*) FROM receipts WHERE closed_at >= ?", until) == 0
	})
	stop()
	shop.judge(orders)
	shop.judgeLocks()
	r.check()
}

// raceCompensator sweeps each five seconds, and asks again about closed orders, in this process.
func (r *rig) raceCompensator() (stop func()) {
	r.t.Helper()
	cfg := *r.cfg
	cfg.Closer.Payment.Recheck, cfg.Closer.Payment.RecheckRate = raceRecheck, 1000
	app := must.Get(pipeline.New(pipeline.Options{
		Config: &cfg, Secrets: pipeline.Secrets{Payment: []string{serviceSecret}},
		Servers: pipeline.Servers{Brokers: r.servers.Brokers, DSN: r.servers.DSN, RedisURL: r.servers.RedisURL},
		Logger:  slog.New(slog.NewTextHandler(r.logs, nil)),
	}))(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, pipeline.Compensator) }()
	stop = sync.OnceFunc(func() {
		cancel()
		expect.NoError(r.t, <-done)
		app.Close()
	})
	r.t.Cleanup(stop)
	return stop
}

// paymentService serves a provider over HTTP.
func (r *rig) paymentService(p payment.Provider) *httptest.Server {
	r.t.Helper()
	h := must.Get(payment.Handler([]string{serviceSecret}, p))(r.t)
	server := httptest.NewServer(h)
	r.t.Cleanup(server.Close)
	return server
}

// racingShop is a shop whose customers pay in the last moment.
type racingShop struct {
	*rig
	provider  *racedProvider
	openings  *openings
	customers sync.WaitGroup
	db        *sql.DB         // of the shop's own
	locks     shoplocks.Tally // of the callbacks

	mu     sync.Mutex
	random *rand.Rand
	due    []orderclose.Order // orders that somebody may read
	known  map[callback.Recorded]int
}

// created opens the payment page of a new order, for some in the last moment before the due time. Nine of ten customers
// pay, within half a second of the due time. The shop is wrong now and then: it opens a page after the due time, or after the close.
// The provider's callback gets lost for a third of the payments, and comes twice for others.
func (s *racingShop) created(o orderclose.Order, _ scenario.Fate) {
	s.mu.Lock()
	s.due = append(s.due, o)
	at := o.Due.Add(time.Duration(s.random.Int64N(int64(time.Second))) - 500*time.Millisecond)
	pays, late, callbacks := s.random.IntN(10) > 0, s.random.IntN(6) == 0, s.random.IntN(3)
	afterClose := s.random.IntN(2) == 0
	lastMoment, opening := s.random.IntN(5) == 0, s.openings.draw(s.random)
	slow := time.Duration(s.random.Int64N(int64(time.Second)))
	s.mu.Unlock()
	customer := func(pay time.Time, begin func() (id string, ok bool)) {
		id, ok := begin()
		if !ok {
			return
		}
		scenario.At(s.t.Context(), pay)
		if !s.provider.pay(o.ID, id) {
			return
		}
		scenario.Pause(s.t.Context(), slow)
		for range callbacks {
			s.callback(o.ID, id)
		}
	}
	switch {
	case late:
		s.customers.Go(func() {
			customer(at.Add(1500*time.Millisecond), func() (string, bool) {
				scenario.At(s.t.Context(), o.Due.Add(slow))
				if afterClose { // so that money comes late on a machine of any speed
					s.until("order "+o.ID+" is closed", func() bool { return s.count("SELECT COUNT(*) FROM receipts WHERE order_id = ?", o.ID) > 0 })
				}
				return s.provider.begin(o.ID, page{known: true}), true
			})
		})
	case lastMoment:
		s.customers.Go(func() { customer(at, func() (string, bool) { return s.openings.open(o, opening) }) })
	case pays:
		s.customers.Go(func() {
			customer(at, func() (string, bool) { return s.provider.begin(o.ID, page{inTime: true, known: true}), true })
		})
	}
}

// raceSeed returns the seed of a race: SEED, or 29.
func raceSeed(t *testing.T) uint64 {
	if os.Getenv("SEED") == "" {
		return 29
	}
	return must.Get(strconv.ParseUint(os.Getenv("SEED"), 10, 64))(t)
}

// callback records a payment, and repeats that until it succeeds, as the callback of a provider does. Its transaction locks
// stock and lines before or after the order, by the seed.
func (s *racingShop) callback(order, id string) {
	s.eventually(func() error {
		s.mu.Lock()
		plan := shoplocks.Draw(s.random)
		s.mu.Unlock()
		if plan.Sorted = true; s.onPostgres() {
			plan.Isolation = sql.LevelReadCommitted // RecordPayment takes no other
		}
		var got callback.Recorded
		err := plan.Run(s.t.Context(), s.db, order, &s.locks, func(tx *sql.Tx) (err error) {
			got, err = callback.RecordPayment(s.t.Context(), s.store.Payments, orderclose.SQL(tx),
				store.LatePayment{OrderID: order, PaymentID: id, Amount: 100, Currency: "EUR"})
			return err
		})
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.known == nil {
				s.known = map[callback.Recorded]int{}
			}
			s.known[got]++
		}
		return err
	})
}

// read reads orders around their due time, and closes those that are due as a shop does that closes on read.
func (s *racingShop) read(ctx context.Context, url string) (readers *sync.WaitGroup) {
	s.t.Helper()
	service := must.Get(payment.NewHTTP(payment.HTTPOptions{URL: url, Secrets: []string{serviceSecret}}))(s.t)
	s.t.Cleanup(func() { service.Close() })
	checked := must.Get(payment.New(payment.Options{Store: s.store, Provider: service.Canceler(), Logger: slog.New(slog.DiscardHandler)}))(s.t)
	readers = &sync.WaitGroup{}
	for range 2 {
		readers.Go(func() {
			scenario.Every(ctx, 20*time.Millisecond, func() {
				if o, due := s.readable(time.Now()); due {
					_, _ = checked.CloseOrders(ctx, orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: o.ID, CreatedAt: o.CreatedAt}})
				}
			})
		})
	}
	return readers
}

// readable takes an order that was due within the last second; false: there is none.
func (s *racingShop) readable(now time.Time) (o orderclose.Order, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = slices.DeleteFunc(s.due, func(o orderclose.Order) bool { return o.Due.Before(now.Add(-time.Second)) })
	i := slices.IndexFunc(s.due, func(o orderclose.Order) bool { return o.Due.Before(now) })
	if i < 0 {
		return o, false
	}
	o = s.due[i]
	s.due = slices.Delete(s.due, i, i+1)
	return o, true
}

func (s *racingShop) onPostgres() bool { return s.store.Dialect() == store.Postgres }

// judgeLocks prints what the callbacks waited. On PostgreSQL, which locks no gaps, the shop locks its rows in an order that leads to no
// deadlock, so each deadlock is with a close. No close may be part of one.
func (s *racingShop) judgeLocks() {
	s.t.Helper()
	deadlocks, others := s.locks.Lost()
	waited := measure.SpreadOf(s.locks.Waited())
	s.t.Logf("%d callbacks: statements, waits and commits took %v, p99 %v, at most %v; %d lost a deadlock, %d another conflict", len(s.locks.Waited()),
		time.Duration(waited.P50), time.Duration(waited.P99), time.Duration(waited.Max), deadlocks, others)
	expect.That(s.t, deadlocks <= 0 || !s.onPostgres(), "the shop lost %d deadlocks with closes", deadlocks)
}

// judge compares the database with the provider's ledger, and prints both.
func (s *racingShop) judge(orders int) {
	s.t.Helper()
	// A row without a payment's id is perhaps the same money as a row with one.
	late := map[string]int{}
	rows := must.Get(s.store.DB().QueryContext(s.t.Context(), "SELECT order_id, COUNT(NULLIF(payment_id, '')) FROM late_payments GROUP BY order_id"))(s.t)
	defer rows.Close()
	for rows.Next() {
		var id string
		var withID int
		must.Do(s.t, rows.Scan(&id, &withID))
		late[id] = max(withID, 1)
	}
	statuses := must.Get(s.store.DB().QueryContext(s.t.Context(), "SELECT id, status FROM orders"))(s.t)
	defer statuses.Close()
	p := s.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	n := map[string]int{}
	for statuses.Next() {
		var id string
		var status store.Status
		must.Do(s.t, statuses.Scan(&id, &status))
		o := p.order(id)
		wrong := func(what string) {
			n["WRONG: "+what]++
			s.t.Errorf("%s: %s; the ledger has %+v, and there are %d late payments", id, what, *o, late[id])
		}
		n["orders that are "+status.String()]++
		switch closed := status == store.Closed; {
		case closed && len(o.paid) > 0 && late[id] == 0:
			wrong("paid and closed without a late payment")
		case closed && late[id] > len(o.paid):
			wrong("more late payments than payments")
		case closed && o.inTime > 0:
			wrong("a payment that was opened in time has succeeded, and the order was closed")
		case closed && o.openedInTime():
			wrong("a payment that was opened in time can still succeed after the close")
		case status == store.Paid && len(o.paid) == 0:
			wrong("paid in the database alone")
		case status == store.Unpaid:
			wrong("still unpaid")
		}
		if status == store.Closed && len(o.paid) > 0 {
			n["closed, paid afterwards, with a late payment"]++
		}
		if status == store.Closed && len(o.open) > 0 {
			n["closed, and the shop opened a page after the due time that can still be paid"]++
		}
	}
	must.Do(s.t, errors.Join(rows.Err(), statuses.Err()))
	n["late payments found by a callback"] = s.count("SELECT COUNT(*) FROM late_payments WHERE source = 'callback'")
	n["late payments found by a recheck"] = s.count("SELECT COUNT(*) FROM late_payments WHERE source = 'recheck'")
	for _, path := range []orderclose.Path{orderclose.PathPipeline, orderclose.PathSweep, orderclose.PathTouch} {
		n["closed by "+string(path)] = s.count("SELECT COUNT(*) FROM receipts WHERE path = ?", path)
	}
	maps.Copy(n, s.openings.counts())
	if found := n["late payments found by a callback"] + n["late payments found by a recheck"]; found == 0 || p.answers[payment.Paid] == 0 {
		s.t.Errorf("nothing was at stake: %d late payments found, answers %v", found, p.answers)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d orders on %s\n", orders, s.t.Name())
	for _, what := range slices.Sorted(maps.Keys(n)) {
		fmt.Fprintf(&out, "%8d  %s\n", n[what], what)
	}
	fmt.Fprintf(&out, "%8d  calls of the provider, with the faults %v and the answers %v\n", p.calls.Load(), p.played, p.answers)
	fmt.Fprintf(&out, "callbacks: %v\n", s.known)
	s.t.Log(out.String())
}
