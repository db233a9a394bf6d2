package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The costs of the model, as documented numbers: two pages at once close 16,500 orders/s, an order that fails for a cause of its own costs
// some 10 ms by halving, a million rows are read in two seconds.
const (
	callCost  = 2 * time.Millisecond
	orderCost = 120 * time.Microsecond
	rowCost   = 2 * time.Microsecond
	readLimit = 2 * time.Second
	silence   = 3 * time.Second // until a shard that is down has timed out
	lockWait  = 2 * time.Second // until a statement of on_close gives up
	// lengthyCall is how long a call takes with an order that needs long.
	lengthyCall = 4 * time.Second
)

// Pause is a row of pauses.
type Pause = pausing.Pause

// trouble is why an order of the model cannot be closed.
type trouble int

const (
	healthy   trouble = iota
	shown             // its rows show it: the store finds it by one statement
	ownCause          // its batch fails
	pending           // the payment provider has no answer
	contended         // its row is locked
	silent            // its call has no answer for three seconds
	hanging           // its call has no answer
	waiting           // a statement of on_close waits, and fails
	lengthy           // its call takes four seconds, and succeeds
	notDue            // a service says not due, and its row stays unpaid
)

// shopOrder is an order of the model.
type shopOrder struct {
	orderclose.Order
	trouble trouble
	open    bool
	tries   []time.Time
	closed  time.Time
	since   time.Time // when it became unpaid again; zero: it did not
}

// shop is a Store, Reader, SweepLog and LeaseDatabase in virtual time, with costs.
type shop struct {
	mu       sync.Mutex
	byID     map[string]*shopOrder
	index    []*shopOrder // by due time and id; closed ones stay, as dead entries do until a purge, and are removed in bulk
	dead     int
	ahead    time.Duration // of the database's clock
	pauses   []Pause
	excluded string // category that the mapping excludes
	askCost  time.Duration
	cost     time.Duration // of an order in a close
	callTime time.Duration // of each close, beside its orders
	down     error
	waiting  int // orders of longer delays that each read of the pass goes past, by rule
	reads    int
	slow     int // reads that took longer than the limit
	leases   map[string]lease
	leaseErr error
	hours    map[time.Time]overdue.Hour
	receipts map[time.Time]int64
	ends     map[time.Time]int
	mute     bool  // closes give no answer
	blocked  block // until freeAt
	freeAt   time.Time
	batch    int // the most orders in a close; 0: any number
}

func newShop() *shop {
	return &shop{byID: map[string]*shopOrder{}, leases: map[string]lease{}, askCost: 20 * time.Millisecond, cost: orderCost,
		hours: map[time.Time]overdue.Hour{}, receipts: map[time.Time]int64{}, ends: map[time.Time]int{}}
}

func (s *shop) now() time.Time { return time.Now().Add(s.ahead) }
func (s *shop) MaxBatch() int  { return s.batch }

func compareOrders(a, b *shopOrder) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) }

// add adds orders with one due time each.
func (s *shop) add(t trouble, category, prefix string, dues ...time.Time) []*shopOrder {
	s.mu.Lock()
	defer s.mu.Unlock()
	var added []*shopOrder
	for i, due := range dues {
		o := &shopOrder{trouble: t, open: true}
		o.Order = orderclose.Order{ID: fmt.Sprintf("%s-%06d", prefix, i), Category: category, CreatedAt: due.Add(-30 * time.Minute), Due: due}
		s.byID[o.ID] = o
		added = append(added, o)
	}
	s.index = append(s.index, added...)
	slices.SortFunc(s.index, compareOrders)
	return added
}

// spread returns n times between from and to, in order.
func spread(r *rand.Rand, n int, from, to time.Time) []time.Time {
	all := make([]time.Time, n)
	for i := range all {
		all[i] = from.Add(time.Duration(r.Int64N(int64(max(to.Sub(from), 1))))).Truncate(time.Millisecond)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// reopen makes orders unpaid again.
func (s *shop) reopen(orders ...*shopOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range orders {
		o.open = true
	}
}

// cure makes orders closable.
func (s *shop) cure(orders ...*shopOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range orders {
		o.trouble = healthy
	}
}

func (s *shop) setPauses(p ...Pause) {
	s.change(func() { s.pauses = p })
}

// change sets or reads fields of a shop that processes use.
func (s *shop) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// hour returns the row of sweeps of this hour.
func (s *shop) hour() overdue.Hour {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hours[s.now().Truncate(time.Hour)]
}

// wait spends time of the database, unless the context ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", orderclose.ErrUnavailable, ctx.Err())
	case <-time.After(d):
		return nil
	}
}

func (s *shop) Now(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now(), s.down
}

func (s *shop) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	found, err := s.read(ctx, overdue.Window{After: after, To: cutoff}, limit)
	return found.Orders, err
}

func (s *shop) BeginTurn(ctx context.Context, at time.Time) (b overdue.Begin, err error) {
	err = s.blockedFor(ctx, callCost, true)
	if errors.Is(err, overdue.ErrSlow) { // the store asks again without the orders, and does not know whether one is due
		return overdue.Begin{Now: s.now(), Pauses: slices.Clone(s.pauses)}, nil
	}
	if err != nil {
		return b, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := sort.Search(len(s.index), func(i int) bool { return s.index[i].Due.After(at) })
	due := slices.ContainsFunc(s.index[:to], func(o *shopOrder) bool { return o.open })
	return overdue.Begin{Now: s.now(), Pauses: slices.Clone(s.pauses), Quiet: !due}, s.down
}

func (s *shop) ReadOverdue(ctx context.Context, w overdue.Window) (overdue.Found, error) {
	return s.read(ctx, w, overdue.MaxRows)
}

func (s *shop) read(ctx context.Context, w overdue.Window, limit int) (f overdue.Found, err error) {
	s.mu.Lock()
	s.reads++
	down, rows := s.down, 0
	from := sort.Search(len(s.index), func(i int) bool { return compareOrders(s.index[i], &shopOrder{Order: w.After}) > 0 })
	to := sort.Search(len(s.index), func(i int) bool { return s.index[i].Due.After(w.To) })
	if w.Newest && !w.Before.Due.IsZero() {
		to = min(to, sort.Search(len(s.index), func(i int) bool { return compareOrders(s.index[i], &shopOrder{Order: w.Before}) >= 0 }))
	}
	if f.All = true; down != nil {
		s.mu.Unlock()
		return overdue.Found{}, down
	}
	look := func(o *shopOrder) bool {
		if !o.open {
			rows++ // a dead entry costs its time, and is not returned
			return true
		}
		if len(f.Orders) == limit {
			f.All = false
			return false
		}
		rows++
		f.Orders, f.Reached = append(f.Orders, o.Order), o.Order
		return true
	}
	if w.Newest {
		for i := to - 1; i >= from && look(s.index[i]); i-- {
		}
	} else {
		for i := from; i < to && look(s.index[i]); i++ {
		}
		rows += s.waiting
	}
	if s.excluded != "" {
		f.Orders = slices.DeleteFunc(f.Orders, func(o orderclose.Order) bool { return o.Category == s.excluded })
	}
	s.mu.Unlock()
	took := callCost + time.Duration(rows)*rowCost
	if took > readLimit {
		s.mu.Lock()
		s.slow++
		s.mu.Unlock()
		if err := wait(ctx, readLimit); err != nil {
			return overdue.Found{}, err
		}
		return overdue.Found{}, fmt.Errorf("%w: %w", overdue.ErrSlow, orderclose.ErrUnavailable)
	}
	return f, s.blockedFor(ctx, took, true)
}

func (s *shop) CloseOrders(ctx context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	s.mu.Lock()
	mute, down, cost, now := s.mute, s.down, callCost+s.callTime+time.Duration(len(requests))*s.cost, s.now()
	var asked, bad int
	troubles := map[trouble]int{}
	for _, r := range requests {
		if o := s.byID[r.OrderID]; o != nil && o.open {
			troubles[o.trouble]++
			asked++
			if o.trouble == shown || o.trouble == ownCause {
				bad++
			}
		}
	}
	for _, p := range s.pauses {
		if p.Category == "" && p.Until.After(now) {
			down = fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, p.Err())
		}
	}
	cost += time.Duration(troubles[pending]) * s.askCost
	s.mu.Unlock()
	if down != nil {
		return nil, down
	}
	for _, r := range requests {
		if o := s.byID[r.OrderID]; o != nil {
			s.mu.Lock()
			o.tries = append(o.tries, time.Now())
			s.mu.Unlock()
		}
	}
	switch {
	case troubles[hanging] > 0:
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", orderclose.ErrUnavailable, ctx.Err())
	case troubles[silent] > 0 || mute:
		if err := wait(ctx, silence); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: a shard gives no answer", orderclose.ErrUnavailable)
	case troubles[lengthy] > 0:
		if err := wait(ctx, lengthyCall); err != nil {
			return nil, err
		}
	case troubles[waiting] > 0:
		if err := wait(ctx, lockWait); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: lock wait timeout", orderclose.ErrContended)
	case troubles[ownCause] > 0:
		if err := wait(ctx, callCost); err != nil {
			return nil, err
		}
		return nil, errors.New("refused_by_trigger: an order is at fault")
	case troubles[shown] > 0:
		cost *= 2
	}
	if err := s.blockedFor(ctx, cost, false); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.now()
	paused := pausesAt(s.pauses, now)
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		outcomes[i] = s.closeOne(r, now, paused)
	}
	return outcomes, nil
}

// closeOne decides on one order. The caller has mu.
func (s *shop) closeOne(r orderclose.CloseRequest, now time.Time, paused pausesOn) orderclose.Outcome {
	o := s.byID[r.OrderID]
	outcome := orderclose.Outcome{OrderID: r.OrderID, At: now}
	switch {
	case o == nil:
		outcome.Verdict = orderclose.NotFound
	case !o.open:
		outcome.Verdict, outcome.Due = orderclose.AlreadyClosed, o.Due
	case paused.category(o.Order):
		outcome.Verdict = orderclose.Paused
	case o.trouble == shown:
		outcome.Verdict, outcome.Err, outcome.Cause = orderclose.Failed, errors.New("no row"), orderclose.StockRowMissing
	case o.trouble == pending:
		outcome.Verdict = orderclose.PaymentPending
	case o.trouble == contended:
		outcome.Verdict = orderclose.Contended
	case o.trouble == notDue || o.Due.After(now):
		outcome.Verdict = orderclose.NotDue
	default:
		outcome.Verdict, outcome.Due = orderclose.Closed, o.Due
		o.open, o.closed = false, time.Now()
		s.receipts[now.Truncate(time.Hour)]++
		if s.dead++; s.dead > 5000 { // a purge
			s.index = slices.DeleteFunc(s.index, func(o *shopOrder) bool { return !o.open })
			s.dead = 0
		}
	}
	return outcome
}

func (s *shop) SweepHour(_ context.Context, _ string, begin time.Time) (overdue.Hour, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hours[begin]
	h.Begin = begin
	return h, s.down
}

func (s *shop) AddSweep(_ context.Context, _ string, begin time.Time, c overdue.Counts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return s.down
	}
	h := s.hours[begin]
	h.Begin = begin
	h.Add(c)
	s.hours[begin] = h
	return nil
}

func (s *shop) EndSweep(_ context.Context, _ string, begin time.Time, state string, took time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hours[begin]
	h.Begin, h.State, h.TookMillis = begin, state, took.Milliseconds()
	s.ends[begin]++
	s.hours[begin] = h
	return s.down
}

// lease is a row of the model.
type lease struct {
	holder string
	until  time.Time
}

func (s *shop) TakeLease(_ context.Context, name, holder string, expiry time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaseErr != nil {
		return false, s.leaseErr
	}
	if l := s.leases[name]; l.holder != holder && time.Now().Before(l.until) {
		return false, nil
	}
	s.leases[name] = lease{holder, time.Now().Add(expiry)}
	return true, nil
}

func (s *shop) DropLease(_ context.Context, name, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[name].holder == holder {
		delete(s.leases, name)
	}
	return nil
}

// steal gives each lease to another process, for a time. The caller has mu.
func (s *shop) steal(holder string, until time.Time) {
	for name := range s.leases {
		s.leases[name] = lease{holder, until}
	}
}

// world runs Compensators on a shop in virtual time.
type world struct {
	*testing.T
	*shop
	r       *rand.Rand
	started time.Time
	probes  []*shopOrder
	procs   map[string]func()
	options func(o *Options) // changes the options of the next process
	running sync.WaitGroup
	loops   map[string]*Compensator
	ctx     context.Context
}

// play runs a test in virtual time, for one seed.
func play(t *testing.T, seed uint64, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := &world{T: t, shop: newShop(), r: rand.New(rand.NewPCG(seed, 1)), started: time.Now(),
			procs: map[string]func(){}, loops: map[string]*Compensator{}, ctx: ctx}
		f(w)
		cancel()
		for _, stop := range w.procs {
			stop()
		}
		w.running.Wait()
		synctest.Wait()
	})
}

// process starts a Compensator with the lease row as its lock.
func (w *world) process(name string) {
	o := Options{Store: w.shop, Reader: w.shop, SweepLog: w.shop, Name: "order-close", Logger: discard, OnHang: func(string) {}}
	o.Leases, o.Process = w.shop, name
	if w.options != nil {
		w.options(&o)
	}
	c, err := New(o)
	must.Do(w, err)
	ctx, cancel := context.WithCancel(w.ctx)
	w.mu.Lock()
	w.loops[name] = c
	w.mu.Unlock()
	w.procs[name] = cancel
	w.running.Go(func() { _ = c.Run(ctx) })
}

// kill ends a process without giving the lock back.
func (w *world) kill(name string) {
	w.mu.Lock()
	held := maps.Clone(w.leases)
	w.mu.Unlock()
	w.procs[name]()
	delete(w.procs, name)
	synctest.Wait()
	w.mu.Lock()
	for n, l := range held {
		if l.holder == name {
			w.leases[n] = lease{"gone", l.until}
		}
	}
	w.mu.Unlock()
}

// probe loses one healthy order each ten seconds, for a time. Each closes within the bound.
func (w *world) probe(lasting time.Duration) {
	for end := time.Now().Add(lasting); time.Now().Before(end); {
		pause := time.Duration(w.r.Int64N(int64(10 * time.Second)))
		time.Sleep(pause)
		added := w.add(healthy, "", fmt.Sprintf("probe%05d", len(w.probes)), w.now())
		w.change(func() { w.probes = append(w.probes, added...) })
		time.Sleep(10*time.Second - pause)
	}
}

// worst returns the greatest lateness of orders, by the process's clock.
func (w *world) worst(orders []*shopOrder) (late time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range orders {
		at := o.closed
		if o.open {
			at = time.Now()
		}
		from := o.Due
		if !o.since.IsZero() {
			from = o.since
		}
		late = max(late, at.Sub(from.Add(-w.ahead)))
	}
	return late
}

// within waits until all orders are closed, at most so long.
func (w *world) within(longest time.Duration, orders []*shopOrder) time.Duration {
	began := time.Now()
	for time.Since(began) < longest && slices.ContainsFunc(orders, func(o *shopOrder) bool { w.mu.Lock(); defer w.mu.Unlock(); return o.open }) {
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(began)
}

// compensators returns those that were started.
func (w *world) compensators() []*Compensator {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.loops))
}

func (w *world) openOrders() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for o := range maps.Values(w.byID) {
		if o.open {
			n++
		}
	}
	return n
}
