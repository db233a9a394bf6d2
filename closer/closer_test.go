package closer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestCloser_ClosesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &testkit.Store{}
		for i := range 25 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until the position is committed
		synctest.Wait()
		expect.Same(t, store.Batches(), []int{10, 10, 5}, "batches")
		expect.Equal(t, log.doneBelow(), 25, "done below")
	})
}

func TestCloser_ALockedRowDelaysOnlyItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, free := &orderLog{}, time.Now().Add(time.Minute)
		store := &testkit.Store{On: func(_ context.Context, requests []orderclose.CloseRequest) error {
			if testkit.Asks(requests, "2") && time.Now().Before(free) {
				return fmt.Errorf("%w: lock wait", orderclose.ErrContended)
			}
			return nil
		}}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until the position is committed
		synctest.Wait()
		expect.Same(t, store.Closed(), []string{"0", "1", "3", "4"}, "closed")
		expect.Equal(t, log.doneBelow(), 2, "done below")
		time.Sleep(65 * time.Second)
		synctest.Wait()
		n := len(store.Closed())
		expect.That(t, n == 5 && log.doneBelow() == 5 && len(log.Appended()) == 0, "%d closed, done below %d, appended %v", n, log.doneBelow(), log.Appended())
	})
}

// There are more orders with locked rows than the closer can try in contendedWait, after which they are tried again.
func TestCloser_LockedRowsDelayNoDueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		store := &testkit.Store{Verdict: testkit.Gives(orderclose.Contended, "locked"), Takes: always(time.Second)}
		for i := range 100 {
			log.add(t, fmt.Sprint("locked-", i))
		}
		for i := range 10 {
			log.addAt(t, 0, fmt.Sprint("due-", i), begin.Add(time.Minute+time.Duration(i)*10*time.Second))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(5 * time.Minute)
		for i := range 10 {
			due := begin.Add(time.Minute + time.Duration(i)*10*time.Second)
			expect.Between(t, store.ClosedAt(fmt.Sprint("due-", i)).Sub(due), 0, 3*time.Second, "the time from the due time to the close of order %d", i)
		}
	})
}

func TestCloser_ParksAnOrderThatIsNearlyDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &orderLog{}
		log.add(t, "nearly")
		log.add(t, "due")
		store := &testkit.Store{Due: map[string]time.Time{"nearly": time.Now().Add(7 * time.Second)}}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until the position is committed
		synctest.Wait()
		expect.Same(t, store.Closed(), []string{"due"}, "closed")
		expect.Equal(t, log.doneBelow(), 0, "done below")
		time.Sleep(7*time.Second + 250*time.Millisecond)
		synctest.Wait()
		expect.Same(t, store.Closed(), []string{"due", "nearly"}, "closed 7 s later")
		expect.Equal(t, log.doneBelow(), 2, "done below")
	})
}

func TestCloser_SchedulesAnOrderWhoseDueTimeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &orderLog{}
		log.add(t, "moved")
		due := time.Now().Add(70 * time.Second)
		defer runCloser(t, log, &testkit.Store{Due: map[string]time.Time{"moved": due}}, 10)()
		synctest.Wait()
		scheduled := log.Appended()["delay_1m"]
		must.That(t, len(scheduled) == 1 && log.doneBelow() == 1, "appended %v, done below %d", log.Appended(), log.doneBelow())
		r, err := scheduled[0].Decode()
		expect.That(t, err == nil && r.Release.Equal(due) && r.Order.Due.Equal(due) && r.NotDue == 1,
			"%+v, %v; want its release time at its due time, %v", r, err, due)
	})
}

// A service repeats its first answer to an idempotency key: with the old due time for ever.
func TestCloser_AsksForAParkedOrderByItsNewDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := time.Now().Add(8 * time.Second)
		log, kept := &orderLog{}, map[string]orderclose.Outcome{}
		store := &testkit.Store{Due: map[string]time.Time{"moved": due}, Answers: func(requests []orderclose.CloseRequest, outcomes []orderclose.Outcome) {
			for i, r := range requests {
				key := httpclose.IdempotencyKey(r)
				if first, is := kept[key]; is {
					outcomes[i] = first
				}
				kept[key] = outcomes[i]
			}
		}}
		log.add(t, "moved")
		defer runCloser(t, log, store, 10)()
		time.Sleep(time.Minute)
		at := store.ClosedAt("moved")
		expect.That(t, at.Equal(due) && log.doneBelow() == 1 && len(kept) == 2, "closed at %v, want it at %v; done below %d", at, due, log.doneBelow())
	})
}

// Both mistakes are counted once for each order, and logged with both times.
func TestCloser_ReportsDueTimesOfAnotherZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, metrics, logs, now := &orderLog{}, testkit.NewMetrics(), &testkit.LogBuffer{}, time.Now()
		store := &testkit.Store{Due: map[string]time.Time{"later": now.Add(8 * time.Hour), "earlier": now.Add(-8 * time.Hour), "same": now,
			"moved": now.Add(20 * time.Minute)}}
		for _, id := range []string{"later", "earlier", "same", "moved"} {
			log.add(t, id)
		}
		log.put(t, toClose, wire.Record{Order: orderclose.Order{ID: "later", CreatedAt: now, Due: now.Add(8 * time.Hour)}, Release: now}) // as it returns
		defer startCloser(t, Options{Log: log, Store: store, Registerer: metrics, Logger: slog.New(slog.NewTextHandler(logs, nil))})()
		time.Sleep(time.Minute)
		later, earlier := metrics.Value("close_due_differs_total", "row", "later"), metrics.Value("close_due_differs_total", "row", "earlier")
		expect.That(t, later == 1 && earlier == 1, "%v orders are later in the database and %v earlier, want 1 and 1", later, earlier)
		expect.That(t, strings.Contains(logs.String(), "order=later record=2000-01-01T00:00:00.000Z database=2000-01-01T08:00:00.000Z differ_by=8h0m0s"),
			"no line with both times:\n%s", logs.String())
	})
}

// Copies and retries are late from the start, and no sign that closers are slow.
func TestCloser_CopiesHaveALatenessOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, r := &orderLog{}, testkit.NewMetrics()
		log.add(t, "fresh")
		o := orderclose.Order{ID: "replayed", CreatedAt: time.Now(), Due: time.Now()}
		log.put(t, toClose, wire.Record{Order: o, Release: o.Due, Lane: wire.LaneReplay})
		o.ID = "retried"
		log.put(t, toClose, wire.Record{Order: o, Release: o.Due, Cause: causePending})
		defer startCloser(t, Options{Log: log, Store: &testkit.Store{}, Registerer: r})()
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		for path, want := range map[string][2]float64{"pipeline": {1, 2}, "replay": {2, 1}} {
			n, closed := r.Value("close_end_to_end_lateness_seconds", "path", path), r.Value("close_total", "path", path, "result", "closed")
			expect.That(t, n == want[0] && closed == want[1], "%s: %v closed, the lateness of %v; want that of %v", path, closed, n, want[0])
		}
	})
}

// The new owner of the partition closes the order and commits.
func TestCloser_AfterAPauseItClosesNothingOfALostPartition(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var stop atomic.Bool // it is set while the loop sleeps, so that the process is stopped when it wakes
			log, store := &orderLog{}, &testkit.Store{}
			log.Lost, log.OnRead = lost, func(at wire.Position) {
				time.Sleep(100 * time.Millisecond) // the loop sleeps by then
				stop.Store(at.Offset == 0)
			}
			log.add(t, "a")
			defer startCloser(t, Options{Log: log, Store: store, Clock: clock.New(func() time.Time { // like a process that SIGSTOP stops when it wakes
				if stop.CompareAndSwap(true, false) {
					time.Sleep(8 * time.Second)
				}
				return time.Now()
			})})()
			time.Sleep(30 * time.Second) // later the loop wakes in time
			closed := len(store.Closed()) > 0
			expect.That(t, closed != lost && log.Confirms() == 1, "claim lost: %v; order closed: %v, after %d calls of Confirm", lost, closed, log.Confirms())
		})
	}
}

// Every unreadable record becomes a dead letter.
func TestCloser_UnreadableRecordsWriteFewLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const garbage, partitions = 5000, 4
		log := &orderLog{}
		for i := range garbage {
			log.Put(testkit.TopicPartition{Topic: toClose.Topic, Partition: i % partitions}, wire.Message{Key: []byte("k"), Value: []byte("garbage")})
		}
		var lines bytes.Buffer // text handlers write one line at a time
		stop := startCloser(t, Options{Log: log, Store: &testkit.Store{}, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		time.Sleep(time.Minute)
		stop()
		synctest.Wait() // for the timer that logs how many lines were left out
		expect.Equal(t, len(log.Keys("dead")), garbage, "dead letters")
		n := bytes.Count(lines.Bytes(), []byte("dead letter"))
		expect.That(t, n == retry.LogBurst+1 && bytes.Contains(lines.Bytes(), []byte("left_out=4980")), "%d lines for %d records:\n%s", n, garbage, lines.String())
	})
}

// The dead letters in memory are bounded, other partitions go on, and in the end every record becomes a dead letter.
func TestCloser_StopsReadingWhileDeadLettersCannotBeAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const garbage, most = 10_000, 1000 + 3000 // a fetch of this log brings 3,000
		log, store := &orderLog{}, &testkit.Store{}
		log.Fail = testkit.Rejects(time.Hour+time.Second, "dead")
		for range garbage {
			log.Put(toClose, wire.Message{Key: []byte("k"), Value: []byte("garbage")})
		}
		log.addAt(t, 1, "good", time.Now())
		defer runCloser(t, log, store, 100)()
		time.Sleep(time.Hour)
		expect.That(t, log.ReadUpTo() <= most && len(store.Closed()) == 1, "%d records of garbage were read, want %d at most; closed %v",
			log.ReadUpTo(), most, store.Closed())
		time.Sleep(time.Minute)
		expect.That(t, len(log.Keys("dead")) == garbage && log.doneBelow() == garbage,
			"%d of %d are dead letters, done below %d", len(log.Keys("dead")), garbage, log.doneBelow())
	})
}
