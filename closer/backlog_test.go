package closer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// Beside a replay at its default rate, which fills one partition after the other, each order that becomes due is closed within two
// seconds, also if a service takes its time for each call.
func TestCloser_AReplayDelaysNoDueOrder(t *testing.T) {
	for what, o := range map[string]Options{
		"a database": {Store: &testkit.Store{Takes: func(inFlight int) time.Duration {
			return 5*time.Millisecond + time.Duration(inFlight)*125*time.Microsecond
		}}},
		"a service": {Store: &testkit.Store{Takes: always(300 * time.Millisecond)}, TargetLatency: ServiceTargetLatency},
	} {
		synctest.Test(t, func(t *testing.T) {
			const partitions, seconds, perSecond, fresh = 12, 12, 1000, 200
			begin := time.Now()
			log, store := &orderLog{}, o.Store.(*testkit.Store)
			due := map[string]time.Time{}
			put := func(partition int, id, lane string, at time.Time) {
				order := orderclose.Order{ID: id, CreatedAt: begin, Due: begin}
				if lane == "" {
					order.Due, due[id] = at, at
				}
				log.putAt(t, testkit.TopicPartition{Topic: toClose.Topic, Partition: partition}, wire.Record{Order: order, Release: order.Due, Lane: lane}, at)
			}
			for i := range seconds * perSecond {
				at := begin.Add(time.Duration(i) * time.Second / perSecond)
				put(i/perSecond, fmt.Sprint("replayed-", i), wire.LaneReplay, at)
				if i%(perSecond/fresh) == 0 {
					put(i/(perSecond/fresh)%partitions, fmt.Sprint("fresh-", i), "", at)
				}
			}
			o.Log = log
			defer startCloser(t, o)()
			time.Sleep(15 * time.Second)
			synctest.Wait()
			late := latest(t, store, due)
			t.Logf("%s: fresh orders were up to %v late beside the replay", what, late)
			expect.AtMost(t, late, 2*time.Second, "%s: the time that an order which was due waited", what)
			expect.Equal(t, len(store.Closed()), seconds*perSecond+len(due), "%s: closed orders", what)
		})
	}
}

// The store was down for ten minutes and is slow afterwards.
func TestCloser_ABacklogKeepsTransactionsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const orders, partitions = 12_000, 12
		begin := time.Now()
		back := begin.Add(10 * time.Minute)
		log := &orderLog{}
		for i := range orders {
			log.addAt(t, i%partitions, fmt.Sprint(i), begin)
		}
		store := &testkit.Store{
			On: down(back),
			Takes: func(inFlight int) time.Duration {
				return 20*time.Millisecond + time.Duration(inFlight)*time.Millisecond
			},
		}
		defer runCloser(t, log, store, 500)()
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		var sum, most time.Duration
		over, all, closed := 0, store.Took(), len(store.Closed())
		for _, took := range all {
			sum, most = sum+took, max(most, took)
			if took > DefaultTargetLatency {
				over++
			}
		}
		n := len(all)
		t.Logf("%d transactions, mean %v, at most %v, %d over the target; all at once would be 2 s each", n, sum/time.Duration(n), most, over)
		expect.That(t, closed == orders && len(log.Appended()) == 0, "%d of %d closed, appended %v", closed, orders, log.Appended())
		// The limit doubles until a transaction is slow, so single ones take long.
		expect.That(t, sum/time.Duration(n) <= DefaultTargetLatency && over <= n/2, "transactions took %v on average, %d of %d over %v",
			sum/time.Duration(n), over, n, DefaultTargetLatency)
	})
}

// A database closes 500 orders in 35.5 ms, or 1,000 in 47.8 ms if two transactions run at once. The first backlog of a closer
// has two at once from its first batch on.
func TestCloser_AFirstBacklogHasTwoTransactionsAtOnce(t *testing.T) {
	for _, orders := range []int{5000, 20_000} {
		synctest.Test(t, func(t *testing.T) {
			const alone, both = 35500 * time.Microsecond, 47800 * time.Microsecond
			begin := time.Now()
			log := &orderLog{}
			for i := range orders {
				log.addAt(t, i%12, fmt.Sprint(i), begin)
			}
			store := &testkit.Store{Takes: func(inFlight int) time.Duration {
				if inFlight <= DefaultBatch {
					return alone
				}
				return both
			}}
			defer runCloser(t, log, store, DefaultBatch)()
			time.Sleep(20 * time.Second)
			synctest.Wait()
			took, closed := store.Took(), store.Closed()
			single := len(slices.DeleteFunc(slices.Clone(took), func(took time.Duration) bool { return took != alone }))
			t.Logf("%d orders were closed after %v; %d of %d transactions began alone", orders, store.ClosedAt(closed[len(closed)-1]).Sub(begin), single, len(took))
			if len(closed) != orders || single > 2 { // the first and the last
				t.Errorf("%d of %d closed, and %d transactions began alone", len(closed), orders, single)
			}
		})
	}
}

// Records that stayed unread for a day are retried a minute from now, and their payment counts as pending from now, whatever the local clock says.
func TestCloser_ARetryOfABacklogWaitsFromNow(t *testing.T) {
	for _, ahead := range []time.Duration{0, 25 * time.Hour, -25 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			log, store := &orderLog{}, &testkit.Store{On: testkit.FailsOn("bad"), Verdict: testkit.Gives(orderclose.PaymentPending, "pending")}
			old := time.Now().Add(time.Second)
			log.addAt(t, 0, "pending", old)
			log.addAt(t, 0, "bad", old)
			time.Sleep(25 * time.Hour) // no closer ran
			c := clock.New(func() time.Time { return time.Now().Add(ahead) })
			go c.Keep(t.Context(), func(context.Context) (time.Time, error) { return time.Now(), nil }, func(time.Duration) {}, slog.New(slog.DiscardHandler))
			synctest.Wait()
			begin := time.Now()
			defer startCloser(t, Options{Log: log, Store: store, Clock: c})()
			time.Sleep(5 * time.Second)
			retried := 0
			for _, m := range log.Appended()["delay_1m"] {
				r, err := m.Decode()
				retried++
				wait := r.Release.Sub(begin)
				expect.That(t, err == nil && wait >= time.Minute && wait <= 68*time.Second,
					"local clock %v ahead: %s is tried again after %v, %v", ahead, r.Order.ID, wait, err)
				if since := r.PendingSince.Sub(begin); r.Order.ID == "pending" && (since < 0 || since > 2*time.Second) {
					t.Errorf("local clock %v ahead: pending since %v after the question", ahead, since)
				}
			}
			expect.That(t, retried == 2 && len(log.Appended()) == 1, "local clock %v ahead: appended %v", ahead, log.Appended())
		})
	}
}

// The store's clock is ten minutes behind that of the closer.
func TestCloser_AnOrderThatIsNotDueWaitsUntilItsDueTimeWhateverTheClocksSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, due := &orderLog{}, time.Now().Add(time.Hour)
		log.add(t, "o")
		store := &testkit.Store{Due: map[string]time.Time{"o": due}, Answers: func(_ []orderclose.CloseRequest, all []orderclose.Outcome) {
			for i := range all {
				all[i].At = all[i].At.Add(-10 * time.Minute)
			}
		}}
		defer startCloser(t, Options{Log: log, Store: store})()
		time.Sleep(time.Second)
		synctest.Wait()
		sent := slices.Concat(slices.Collect(maps.Values(log.Appended()))...)
		must.That(t, len(sent) == 1, "appended %v", log.Appended())
		r, err := sent[0].Decode()
		expect.That(t, err == nil && r.Release.Equal(due), "its release is %v after its due time, %v", r.Release.Sub(due), err)
	})
}
