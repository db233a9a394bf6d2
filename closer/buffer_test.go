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

	"orderclose"
	"orderclose/internal/partition/partitiontest"
)

// runSmall runs a closer of the close topic that keeps so many bytes in memory.
func runSmall(t *testing.T, log Log, store Store, bytes int) (stop func()) {
	t.Helper()
	c, err := New(Options{
		Log: log, Store: store, Group: "g", CloseTopic: toClose.Topic, DeadLetterTopic: "dead", ControlTopic: "control",
		Buckets: orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1m", Length: time.Minute}},
		Batch:   100, BufferBytes: bytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return partitiontest.Start(t, c.Run)
}

// TestCloser_ContendedOrdersAreBoundedInMemoryAndHoldUpNothing: those that there is no
// room for wait in a bucket, as they are, and use up no try.
func TestCloser_ContendedOrdersAreBoundedInMemoryAndHoldUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locked, bytes = 4000, 512 << 10
		log, begin := &orderLog{}, time.Now()
		store := &fakeStore{locked: map[string]bool{}}
		for i := range locked {
			id := fmt.Sprint("locked-", i)
			store.locked[id] = true
			o := orderclose.Order{ID: id, CreatedAt: begin, Due: begin, Attributes: map[string]any{"n": i}}
			log.put(t, toClose, orderclose.Record{Order: o, Release: begin})
		}
		due := map[string]time.Time{}
		for i := range 60 {
			id, at := fmt.Sprint("due-", i), begin.Add(time.Duration(i)*time.Second)
			due[id] = at
			log.putAt(t, toClose, orderclose.Record{Order: orderclose.Order{ID: id, CreatedAt: begin, Due: at}, Release: at}, at)
		}
		defer runSmall(t, log, store, bytes)()
		time.Sleep(time.Minute)
		for id, at := range due {
			if late := store.at(id).Sub(at); late < 0 || late > time.Second {
				t.Errorf("%s was closed %v after it was due", id, late)
			}
		}
		away := log.Appended()["delay_1m"]
		if kept := locked - len(away); kept < 50 || kept > bytes/2/entryBytes {
			t.Errorf("%d orders are kept in %d bytes of memory", kept, bytes)
		}
		for _, m := range away {
			r, err := m.Decode()
			wait := r.Release.Sub(begin)
			if err != nil || r.Attempt != 0 || r.Cause != "contended" || wait < time.Minute || wait > 2*time.Minute+6*time.Second ||
				fmt.Sprint("locked-", r.Order.Attributes["n"]) != r.Order.ID {
				t.Fatalf("%+v is tried again after %v, %v", r, wait, err)
			}
		}
		store.mu.Lock()
		clear(store.locked)
		store.mu.Unlock()
		time.Sleep(5 * time.Second)
		if closed := len(store.ids()); closed+len(away) != locked+len(due) || len(log.Appended()["delay_1m"]) != len(away) || log.doneBelow() != int64(locked+len(due)) {
			t.Errorf("%d closed, %d away, done below %d", closed, len(away), log.doneBelow())
		}
	})
}

// TestCloser_WhatIsNearlyDueWaitsInABucketIfThereIsNoRoom, and is no later for it.
func TestCloser_WhatIsNearlyDueWaitsInABucketIfThereIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const orders = 2000
		log, due := &orderLog{}, time.Now().Add(9*time.Second)
		store := &fakeStore{due: map[string]time.Time{}}
		for i := range orders {
			id := fmt.Sprint(i)
			store.due[id] = due
			log.add(t, id)
		}
		defer runSmall(t, log, store, 512<<10)()
		time.Sleep(10 * time.Second)
		away := log.Appended()["delay_10s"]
		if kept := len(store.ids()); kept == 0 || len(away) == 0 || kept+len(away) != orders || log.doneBelow() != orders {
			t.Errorf("%d closed here, %d away, done below %d", kept, len(away), log.doneBelow())
		}
		for _, m := range away {
			if r, err := m.Decode(); err != nil || !r.Release.Equal(due) || r.NotDue != 0 || r.Origin.Topic != "" {
				t.Fatalf("%+v, %v; want it released when it is due, %v", r, err, due)
			}
		}
	})
}

// TestCloser_WhileTheDatabaseIsAwayLargeRecordsAreNotReadAhead, but for a few: one of
// the others may tell that it is back.
func TestCloser_WhileTheDatabaseIsAwayLargeRecordsAreNotReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &fetchedLog{}, time.Now()
		for i := range 100 {
			o := orderclose.Order{ID: fmt.Sprint(i), CreatedAt: begin, Due: begin, Attributes: map[string]any{"note": strings.Repeat("x", 20<<10)}}
			log.putAt(t, toClose, orderclose.Record{Order: o, Release: begin}, begin.Add(time.Duration(i)*time.Second))
		}
		var back atomic.Bool
		store := &fakeStore{away: func() bool { return !back.Load() }}
		defer runSmall(t, log, store, 512<<10)()
		time.Sleep(10 * time.Minute)
		if n := log.upTo.Load(); n < leastAhead || n > 15 {
			t.Errorf("%d records of 20 KB were read into 256 KB", n)
		}
		back.Store(true)
		time.Sleep(time.Minute)
		if n := len(store.ids()); n != 100 {
			t.Errorf("%d closed", n)
		}
	})
}

// TestBuffer_HasRoomForSoManyOrdersAndBytes, and half of it for orders that were blocked
// before.
func TestBuffer_HasRoomForSoManyOrdersAndBytes(t *testing.T) {
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
			if n != want {
				t.Errorf("%d orders have room in %d bytes, want %d; blocked: %v", n, c.bytes, want, blocked)
			}
		}
	}
}

// TestBuffer_GivesWhatCanBeTried compares it with a list that is searched.
func TestBuffer_GivesWhatCanBeTried(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b buffer
		now, parked := time.Unix(1e9, 0), map[*entry]bool{}
		var queued []*entry
		t.Repeat(map[string]func(*rapid.T){
			"queue": func(t *rapid.T) {
				e := &entry{message: orderclose.Message{Offset: int64(len(queued))}}
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
					if !now.Before(e.until) {
						ready++
					}
				}
				n := min(len(queued), max(most-ready, (most+1)/2))
				batch := b.next(now, most)
				if len(batch) != n+min(ready, most-n) || !slices.Equal(batch[:n], queued[:n]) {
					t.Fatalf("of %d queued and %d ready %d were taken, want %d and the rest of %d", len(queued), ready, len(batch), n, most)
				}
				latest := time.Time{}
				for _, e := range batch[n:] {
					if !parked[e] || now.Before(e.until) || e.until.Before(latest) {
						t.Fatalf("%v was taken at %v, after one of %v", e.until, now, latest)
					}
					latest = e.until
					delete(parked, e)
				}
				queued = queued[n:]
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "for"))) },
			"": func(t *rapid.T) {
				first := time.Hour
				for e := range maps.Keys(parked) {
					first = min(first, e.until.Sub(now))
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
