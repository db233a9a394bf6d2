package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// late is an unpaid order of a category that became due some time ago.
func late(id, category string, ago time.Duration) orderclose.Order {
	return orderclose.Order{ID: id, Category: category, Due: time.Now().Add(-ago)}
}

// lookStore counts the pages that are read, and the questions about each order. Its orders are sorted by due time.
type lookStore struct {
	mu      sync.Mutex
	orders  []orderclose.Order
	pages   int
	asks    map[string]int
	pending map[string]bool
	verdict orderclose.Verdict // of the orders in pending
	closed  map[string]bool
	ahead   time.Duration // by how much the database's clock is ahead
	whole   atomic.Int64  // how long a read takes that begins at the oldest orders, in nanoseconds
	wholes  atomic.Int64  // such reads
}

func newLookStore() *lookStore {
	return &lookStore{asks: map[string]int{}, closed: map[string]bool{}, verdict: orderclose.PaymentPending}
}

func (s *lookStore) Now(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead), nil
}

// setClock sets the database's clock ahead of the right time.
func (s *lookStore) setClock(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
}

func (s *lookStore) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) (page []orderclose.Order, err error) {
	if after.Due.IsZero() {
		s.wholes.Add(1)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(s.whole.Load())):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages++
	first, _ := slices.BinarySearchFunc(s.orders, after, func(o, after orderclose.Order) int {
		return cmp.Or(o.Due.Compare(after.Due), cmp.Compare(o.ID, after.ID+"\x00"))
	})
	for _, o := range s.orders[first:] {
		if o.Due.After(cutoff) || len(page) == limit {
			break
		}
		if !s.closed[o.ID] {
			page = append(page, o)
		}
	}
	return page, nil
}

func (s *lookStore) CloseOrders(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) (outcomes []orderclose.Outcome, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range requests {
		s.asks[r.OrderID]++
		o := orderclose.Outcome{OrderID: r.OrderID, Verdict: s.verdict, Due: r.Due, At: time.Now().Add(s.ahead)}
		if !s.pending[r.OrderID] {
			o.Verdict = orderclose.Closed
			s.closed[r.OrderID] = true
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// add adds unpaid orders.
func (s *lookStore) add(orders ...orderclose.Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, orders...)
	slices.SortFunc(s.orders, func(a, b orderclose.Order) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) })
}

// addMany adds orders of a category, each due a millisecond after the one before.
func (s *lookStore) addMany(n int, category string, ago time.Duration) {
	var all []orderclose.Order
	for i := range n {
		all = append(all, late(fmt.Sprintf("%s%06d", category, i), category, ago-time.Duration(i)*time.Millisecond))
	}
	s.add(all...)
}

func (s *lookStore) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.orders) - len(s.closed)
}

// asked returns how many orders the store was asked to close, and how often it was asked about one of them.
func (s *lookStore) asked(id string) (orders, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asks), s.asks[id]
}

// read returns how many pages were read since the last call.
func (s *lookStore) read() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.pages
	s.pages = 0
	return n
}

// setPending sets the orders whose payment is pending.
func (s *lookStore) setPending(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = map[string]bool{}
	for _, id := range ids {
		s.pending[id] = true
	}
}

// lose adds an order, and returns after how long it is closed.
func (s *lookStore) lose(o orderclose.Order) (open time.Duration) {
	s.add(o)
	for began := time.Now(); ; time.Sleep(time.Second) {
		s.mu.Lock()
		closed := s.closed[o.ID]
		s.mu.Unlock()
		if open = time.Since(began); closed || open > time.Hour {
			return open
		}
	}
}

// keeping runs test beside a Compensator that swept a minute ago, and sweeps again in an hour.
func keeping(t *testing.T, o Options, test func(s *lookStore, h *fakeHistory, m counts)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, h, m := newLookStore(), &fakeHistory{}, newCounts()
		o.Store, o.History, o.Registerer = s, h.history(), m
		c := newCompensator(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { expect.NoError(t, c.Run(ctx)) })
		defer running.Wait()
		defer cancel()
		time.Sleep(time.Minute)
		h.take()
		s.read()
		test(s, h, m)
	})
}

// within is the time from the end of OverdueGrace until an order is closed: one look.
const within = lookAtRest + time.Second

func TestOverdue_AnOrderThatNothingExplainsStartsASweep(t *testing.T) {
	keeping(t, Options{Period: time.Hour}, func(s *lookStore, h *fakeHistory, m counts) {
		swept := m.swept()
		expect.AtMost(t, s.lose(late("a", "", 0)), OverdueGrace+within, "the time until a lost order is closed")
		for i := range 10 { // each is found within a look of the series
			expect.AtMost(t, s.lose(late(fmt.Sprint("b", i), "", 0)), OverdueGrace+lookInterval+time.Second, "the time until the next one is closed")
		}
		got := h.take()
		expect.Equal(t, len(got), 0, "records before the series ends")
		time.Sleep(seriesRest + lookInterval)
		got = h.take()
		expect.That(t, len(got) == 1 && got[0].Why == wire.SweepOverdue && got[0].Closed == 11 && got[0].Found == 11, "records of the series: %+v", got)
		expect.Equal(t, m.swept()-swept, 0, "sweeps that count as the hourly one")
	})
}

func TestOverdue_AtRestALookReadsOnePage(t *testing.T) {
	keeping(t, Options{Period: time.Hour}, func(s *lookStore, _ *fakeHistory, _ counts) {
		time.Sleep(10 * time.Minute)
		expect.Between(t, float64(s.read()), 39, 41, "pages that are read in ten minutes")
	})
}

// A store that reads past many orders needs long for all of them, as by rule: so do looks at all orders, which become rare, and losses are
// found meanwhile. The payments of sixty orders are pending, so that there is always one whose rest has just ended.
func TestOverdue_FindsALossThoughReadingAllOrdersTakesLong(t *testing.T) {
	for _, took := range []time.Duration{2 * time.Second, 12 * time.Second, time.Hour} {
		t.Run(took.String(), func(t *testing.T) {
			keeping(t, Options{Period: 24 * time.Hour}, func(s *lookStore, _ *fakeHistory, _ counts) {
				s.whole.Store(int64(took))
				look := min(took, lookTimeout)
				time.Sleep(2 * (look + lookAtRest)) // the first look that is slow
				var pending []string
				for i := range 60 {
					pending = append(pending, fmt.Sprint("p", i))
					s.add(late(pending[i], "", -time.Duration(i)*5*time.Second))
				}
				s.setPending(pending...)
				time.Sleep(10 * time.Minute)
				for i := range 30 {
					open := s.lose(late(fmt.Sprint("a", i), "", 0))
					expect.AtMost(t, open, OverdueGrace+within+look+lookAtRest, "the time until a lost order is closed")
					time.Sleep(time.Duration(i) * time.Second)
				}
				if took < lookTimeout {
					open := s.lose(late("added late", "", time.Hour))
					expect.AtMost(t, open, (wholeShare+3)*took+2*lookAtRest, "the time until an order is closed that was due before it was added")
				}
				time.Sleep(2 * seriesRest)
				before := s.wholes.Load()
				time.Sleep(time.Hour)
				expect.AtMost(t, time.Duration(s.wholes.Load()-before)*look, time.Hour/wholeShare, "the time of reads of all orders in an hour")
				s.setPending()
				time.Sleep(longestRest + seriesRest)
				expect.Equal(t, s.open(), 0, "orders that are open after their payments were known")
			})
		})
	}
}

// An order whose payment is pending rests: it starts no sweep meanwhile, its provider is not asked, and it prolongs no series.
func TestOverdue_ARestingOrderStartsNoSweep(t *testing.T) {
	keeping(t, Options{Period: 24 * time.Hour}, func(s *lookStore, h *fakeHistory, _ counts) {
		s.setPending("p")
		s.add(late("p", "", 0))
		time.Sleep(time.Hour)
		_, asked := s.asked("p")
		expect.Between(t, float64(asked), 12, 20, "questions about an order whose payment is pending for an hour")
		expect.Equal(t, len(h.take()), 0, "records of sweeps that closed nothing")
		expect.AtMost(t, s.lose(late("lost", "", 0)), OverdueGrace+within, "the time until a lost order is closed beside it")
		s.setPending()
		time.Sleep(longestRest + within)
		expect.Equal(t, s.open(), 0, "open orders after the payment was decided")
	})
}

// 100,000 paused orders are due before an order that is lost. They are read once.
func TestOverdue_ExplainedOrdersHideNone(t *testing.T) {
	var pauses atomic.Pointer[[]Pause]
	pauses.Store(&[]Pause{{Path: orderclose.PathPipeline, Category: "held"}})
	options := Options{Period: 24 * time.Hour, Rate: -1, Pauses: func(context.Context) ([]Pause, error) { return *pauses.Load(), nil }}
	keeping(t, options, func(s *lookStore, _ *fakeHistory, _ counts) {
		s.addMany(100_000, "held", time.Hour)
		time.Sleep(time.Minute)
		s.read()
		expect.AtMost(t, s.lose(late("lost", "", 0)), OverdueGrace+within, "the time until an order behind 100,000 others is closed")
		pages := s.read()
		asked, _ := s.asked("")
		expect.That(t, pages <= 10 && asked == 1, "%d pages are read, and %d orders asked about", pages, asked)
		pauses.Store(&[]Pause{})
		time.Sleep(lookAtRest + time.Second)
		expect.Equal(t, s.open(), 0, "open orders after the pause")
	})
}

// A rest that ends behind many explained orders is seen.
func TestOverdue_AnEndedRestIsSeenBehindExplainedOrders(t *testing.T) {
	pauses := []Pause{{Path: orderclose.PathPipeline, Category: "held"}}
	options := Options{Period: 24 * time.Hour, Rate: -1, Pauses: func(context.Context) ([]Pause, error) { return pauses, nil }}
	keeping(t, options, func(s *lookStore, _ *fakeHistory, _ counts) {
		s.setPending("p")
		s.add(late("p", "", 2*time.Hour))
		s.addMany(2000, "held", time.Hour)
		time.Sleep(10 * time.Minute)
		s.setPending()
		time.Sleep(longestRest + within)
		expect.Equal(t, s.open(), 2000, "open orders after the payment was decided")
	})
}

// While the database's clock was an hour ahead, paused orders seemed to be overdue that are due later than an order that is lost.
func TestOverdue_AClockThatIsSetBackHidesNoOrder(t *testing.T) {
	pauses := []Pause{{Path: orderclose.PathPipeline, Category: "held"}}
	options := Options{Period: 24 * time.Hour, Rate: -1, Pauses: func(context.Context) ([]Pause, error) { return pauses, nil }}
	keeping(t, options, func(s *lookStore, _ *fakeHistory, _ counts) {
		s.addMany(2000, "held", -30*time.Minute)
		s.setClock(time.Hour)
		time.Sleep(time.Minute)
		s.setClock(0)
		time.Sleep(time.Minute)
		expect.AtMost(t, s.lose(late("lost", "", 0)), OverdueGrace+within, "the time until a lost order is closed")
	})
}

// A rest is a time by the database's clock, and was computed while that was an hour ahead.
func TestOverdue_ARestEndsThoughTheClockIsSetBack(t *testing.T) {
	keeping(t, Options{Period: 24 * time.Hour}, func(s *lookStore, _ *fakeHistory, _ counts) {
		s.setPending("p")
		s.setClock(time.Hour)
		s.add(late("p", "", 0))
		time.Sleep(time.Minute)
		s.setClock(0)
		s.setPending()
		time.Sleep(longestRest + within)
		expect.Equal(t, s.open(), 0, "open orders after the payment was decided")
	})
}

// The store alone knows that the orders are paused. The hourly sweep tries them too, between two looks, and must not end their rests unseen.
func TestOverdue_TheHourlySweepHidesNoOrderThatTheStorePauses(t *testing.T) {
	keeping(t, Options{Period: time.Hour, Rate: -1}, func(s *lookStore, _ *fakeHistory, _ counts) {
		var ids []string
		for i := range 2000 {
			ids = append(ids, fmt.Sprintf("%06d", i))
		}
		s.verdict = orderclose.Paused
		s.setPending(ids...)
		s.addMany(len(ids), "", time.Hour)
		time.Sleep(62 * time.Minute)
		s.setPending()
		time.Sleep(longestRest + within)
		expect.Equal(t, s.open(), 0, "open orders after the pause")
	})
}

// While the pauses are unknown, the keeper waits.
func TestOverdue_WaitsForUnknownPauses(t *testing.T) {
	var known atomic.Bool
	options := Options{Period: 24 * time.Hour, Pauses: func(context.Context) ([]Pause, error) {
		if !known.Load() {
			return nil, errors.New("the pauses are unknown")
		}
		return nil, nil
	}}
	keeping(t, options, func(s *lookStore, _ *fakeHistory, _ counts) {
		time.AfterFunc(30*time.Minute, func() { known.Store(true) })
		expect.Between(t, s.lose(late("lost", "", 0)).Seconds(), 1800, 1830, "the seconds until the order is closed")
	})
}

// behindPipeline is the backlog of a pipeline whose closers settle records.
type behindPipeline struct {
	late  time.Time // until then
	stuck bool
	asked int64
}

func (b *behindPipeline) backlog(context.Context) Backlog {
	b.asked++
	if b.stuck {
		return Backlog{Late: time.Now().Before(b.late), Settled: 7}
	}
	return Backlog{Late: time.Now().Before(b.late), Settled: b.asked}
}

func TestOverdue_ACloserThatCatchesUpStartsNoSweep(t *testing.T) {
	b := &behindPipeline{}
	keeping(t, Options{Period: 24 * time.Hour, Backlog: b.backlog}, func(s *lookStore, h *fakeHistory, _ counts) {
		b.late = time.Now().Add(time.Minute)
		time.AfterFunc(58*time.Second, func() { // the closer has closed them
			s.mu.Lock()
			defer s.mu.Unlock()
			s.orders = nil
		})
		s.addMany(1000, "o", 0)
		time.Sleep(10 * time.Minute)
		asked, _ := s.asked("")
		expect.That(t, asked == 0 && len(h.take()) == 0, "%d orders are swept that the closer closes", asked)
	})
}

// The keeper leaves orders to a pipeline that is behind for two minutes. Then it sweeps, slowly while closers work.
func TestOverdue_ALossBesideABacklogIsFoundWithinTwoMinutes(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]bool{"closers work": false, "no closer works": true} {
		t.Run(name, func(t *testing.T) {
			b := &behindPipeline{stuck: stuck}
			keeping(t, Options{Period: 24 * time.Hour, Backlog: b.backlog, Rate: 1000}, func(s *lookStore, _ *fakeHistory, _ counts) {
				b.late = time.Now().Add(10 * time.Minute)
				took := s.lose(late("lost", "", 0))
				expect.That(t, took >= longestWait && took <= longestWait+OverdueGrace+within, "closed after %v", took)
				s.addMany(20_000, "o", 30*time.Second)
				time.Sleep(30 * time.Second)
				closed := 20_000 - s.open()
				expect.That(t, stuck && closed > 15_000 || !stuck && closed > 1500 && closed < 5000, "in half a minute %d orders are closed", closed)
			})
		})
	}
}

// Only one process looks, and another takes over within a minute.
func TestOverdue_OneOfAllLooks(t *testing.T) {
	s := newLookStore()
	inFleet(t, &fakeStore{}, func(f *fleet) {
		for range 3 {
			lock, stop := f.lock(DefaultLockKey + "-keeper")
			defer stop()
			defer f.start(Options{Store: s, KeeperLock: lock, Period: 24 * time.Hour})()
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		s.setPending("p")
		s.add(late("p", "", 0))
		time.Sleep(time.Hour)
		_, asked := s.asked("p")
		expect.Between(t, float64(asked), 12, 20, "questions of three processes in an hour")
		f.stop(0)
		expect.AtMost(t, s.lose(late("lost", "", 0)), time.Minute, "the time until another process sweeps")
		f.redis.SetError("LOADING")
		expect.AtMost(t, s.lose(late("without Redis", "", 0)), OverdueGrace+within, "the time until an order is closed without Redis")
	})
}
