package closer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// Contended orders without room in memory wait in a bucket, unchanged, and use up no retry. Due orders are not delayed.
func TestCloser_ContendedOrdersAreBoundedInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locked, bytes = 4000, 512 << 10
		log, begin := &orderLog{}, time.Now()
		var free atomic.Bool
		store := &testkit.Store{Verdict: func(id string) orderclose.Verdict {
			if strings.HasPrefix(id, "locked") && !free.Load() {
				return orderclose.Contended
			}
			return ""
		}}
		for i := range locked {
			o := orderclose.Order{ID: fmt.Sprint("locked-", i), CreatedAt: begin, Due: begin, Attributes: map[string]any{"n": i}}
			log.put(t, toClose, wire.Record{Order: o, Release: begin})
		}
		due := map[string]time.Time{}
		for i := range 60 {
			id, at := fmt.Sprint("due-", i), begin.Add(time.Duration(i)*time.Second)
			due[id] = at
			log.addAt(t, 0, id, at)
		}
		defer startCloser(t, Options{Log: log, Store: store, Batch: 100, BufferBytes: bytes})()
		time.Sleep(time.Minute)
		for id, at := range due {
			expect.Between(t, store.ClosedAt(id).Sub(at), 0, time.Second, "the time from the due time to the close of %s", id)
		}
		inBucket := log.Appended()["delay_1m"]
		expect.Between(t, locked-len(inBucket), 50, bytes/2/entryBytes, "orders in %d bytes of memory", bytes)
		for _, m := range inBucket {
			r, err := m.Decode()
			wait := r.Release.Sub(begin)
			if err != nil || r.Attempt != 0 || r.Cause != "contended" || wait < time.Minute || wait > 2*time.Minute+6*time.Second ||
				fmt.Sprint("locked-", r.Order.Attributes["n"]) != r.Order.ID {
				t.Fatalf("%+v is tried again after %v, %v", r, wait, err)
			}
		}
		free.Store(true)
		time.Sleep(5 * time.Second)
		if closed := len(store.Closed()); closed+len(inBucket) != locked+len(due) || len(log.Appended()["delay_1m"]) != len(inBucket) ||
			log.doneBelow() != int64(locked+len(due)) {
			t.Errorf("%d closed, %d in a bucket, done below %d", closed, len(inBucket), log.doneBelow())
		}
	})
}

// The bucket makes them no later.
func TestCloser_NearlyDueOrdersWithoutRoomWaitInABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const orders = 2000
		log, due := &orderLog{}, time.Now().Add(9*time.Second)
		store := &testkit.Store{Due: map[string]time.Time{}}
		for i := range orders {
			id := fmt.Sprint(i)
			store.Due[id] = due
			log.add(t, id)
		}
		defer startCloser(t, Options{Log: log, Store: store, Batch: 100, BufferBytes: 512 << 10})()
		time.Sleep(10 * time.Second)
		inBucket := log.Appended()["delay_10s"]
		if kept := len(store.Closed()); kept == 0 || len(inBucket) == 0 || kept+len(inBucket) != orders || log.doneBelow() != orders {
			t.Errorf("%d closed from memory, %d in a bucket, done below %d", kept, len(inBucket), log.doneBelow())
		}
		for _, m := range inBucket {
			r, err := m.Decode()
			must.That(t, err == nil && r.Release.Equal(due) && r.NotDue == 0 && r.Origin.Topic == "", "%+v, %v; want it released when it is due, %v", r, err, due)
		}
	})
}

// A few are read whatever their size, because closing another order may show that the store is back.
func TestCloser_ReadsFewLargeRecordsAheadWhileTheDatabaseIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		for i := range 100 {
			o := orderclose.Order{ID: fmt.Sprint(i), CreatedAt: begin, Due: begin, Attributes: map[string]any{"note": strings.Repeat("x", 20<<10)}}
			log.putAt(t, toClose, wire.Record{Order: o, Release: begin}, begin.Add(time.Duration(i)*time.Second))
		}
		store := &testkit.Store{On: down(begin.Add(10 * time.Minute))}
		defer startCloser(t, Options{Log: log, Store: store, Batch: 100, BufferBytes: 512 << 10})()
		time.Sleep(10*time.Minute - time.Second)
		expect.Between(t, log.ReadUpTo(), minReadAhead, 15, "records of 20 KB that were read with a bound of 256 KB")
		time.Sleep(time.Minute)
		expect.Equal(t, len(store.Closed()), 100, "closed orders")
	})
}

// Orders that were blocked before have half of the room.
func TestBuffer_HasRoomIsBoundedInOrdersAndBytes(t *testing.T) {
	size := (&entry{}).size()
	for _, c := range []struct{ bytes, want int }{{1 << 30, maxParked}, {100 * size, 100}} {
		for _, blocked := range []bool{false, true} {
			want := c.want
			if blocked {
				want /= 2
			}
			var b buffer
			n := 0
			for ; n <= maxParked && b.hasRoom(&entry{blocked: blocked}, c.bytes); n++ {
				b.park(&entry{blocked: blocked}, time.Time{})
			}
			expect.Equal(t, n, want, "orders have room in %d bytes; blocked: %v", c.bytes, blocked)
		}
	}
}

// The model is a list that is searched.
func TestBuffer_NextMatchesASearchedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b buffer
		now, parked := time.Unix(1e9, 0), map[*entry]bool{}
		var queued []*entry
		t.Repeat(map[string]func(*rapid.T){
			"queue": func(t *rapid.T) {
				e := &entry{raw: wire.RawRecord{Offset: int64(len(queued))}}
				queued = append(queued, e)
				b.add(e)
			},
			"park": func(t *rapid.T) {
				e := &entry{}
				b.park(e, now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "in"))))
				parked[e] = true
			},
			"take": func(t *rapid.T) {
				most := rapid.IntRange(1, 10).Draw(t, "most")
				ready := 0
				for e := range parked {
					if !now.Before(e.retryAt) {
						ready++
					}
				}
				n := min(len(queued), max(most-ready, (most+1)/2))
				batch := b.next(now, most)
				must.That(t, len(batch) == n+min(ready, most-n) && slices.Equal(batch[:n], queued[:n]),
					"of %d queued and %d ready %d were taken, want %d and the rest of %d", len(queued), ready, len(batch), n, most)
				latest := time.Time{}
				for _, e := range batch[n:] {
					must.That(t, parked[e] && !now.Before(e.retryAt) && !e.retryAt.Before(latest), "%v was taken at %v, after one of %v", e.retryAt, now, latest)
					latest = e.retryAt
					delete(parked, e)
				}
				queued = queued[n:]
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "for"))) },
			"": func(t *rapid.T) {
				first := time.Hour
				for e := range maps.Keys(parked) {
					first = min(first, e.retryAt.Sub(now))
				}
				size := (&entry{}).size()
				if b.queueBytes != size*len(queued) || b.parkedBytes != size*len(parked) || b.wake(now, time.Hour) != first {
					t.Fatalf("%d and %d bytes for %d and %d entries; wakes after %v, want %v",
						b.queueBytes, b.parkedBytes, len(queued), len(parked), b.wake(now, time.Hour), first)
				}
			},
		})
	})
}
