package closer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"orderclose"
	"orderclose/httpclose"
)

func TestCloser_ClosesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{}
		for i := range 25 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until it has told how far it is
		synctest.Wait()
		if diff := cmp.Diff([]int{10, 10, 5}, store.batches); diff != "" || log.doneBelow() != 25 {
			t.Errorf("done below %d, batches (-want +got):\n%s", log.doneBelow(), diff)
		}
	})
}

func TestCloser_OneHeldRowStopsNobodyElseAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &orderLog{}
		store := &fakeStore{held: map[string]time.Time{"2": time.Now().Add(time.Minute)}}
		for i := range 5 {
			log.add(t, fmt.Sprint(i))
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until it has told how far it is
		synctest.Wait()
		if diff := cmp.Diff([]string{"0", "1", "3", "4"}, store.ids()); diff != "" || log.doneBelow() != 2 {
			t.Errorf("done below %d, closed (-want +got):\n%s", log.doneBelow(), diff)
		}
		time.Sleep(65 * time.Second)
		synctest.Wait()
		if n := len(store.ids()); n != 5 || log.doneBelow() != 5 || len(log.Appended()) != 0 {
			t.Errorf("%d closed, done below %d, appended %v", n, log.doneBelow(), log.Appended())
		}
	})
}

// TestCloser_HeldRowsKeepOutNothingThatIsDue, although there are more of them than can
// be tried until they are tried again.
func TestCloser_HeldRowsKeepOutNothingThatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		store := &fakeStore{locked: map[string]bool{}, slow: func(int) time.Duration { return time.Second }}
		for i := range 100 {
			id := fmt.Sprint("held-", i)
			store.locked[id] = true
			log.add(t, id)
		}
		for i := range 10 {
			due := begin.Add(time.Minute + time.Duration(i)*10*time.Second)
			o := orderclose.Order{ID: fmt.Sprint("due-", i), CreatedAt: begin, Due: due}
			log.putAt(t, toClose, orderclose.Record{Order: o, Release: due}, due)
		}
		defer runCloser(t, log, store, 10)()
		time.Sleep(5 * time.Minute)
		for i := range 10 {
			due := begin.Add(time.Minute + time.Duration(i)*10*time.Second)
			if late := store.at(fmt.Sprint("due-", i)).Sub(due); late < 0 || late > 3*time.Second {
				t.Errorf("order %d closed %v after it was due", i, late)
			}
		}
	})
}

func TestCloser_AnOrderNearlyDueIsParkedWhileOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &orderLog{}
		log.add(t, "nearly")
		log.add(t, "due")
		store := &fakeStore{due: map[string]time.Time{"nearly": time.Now().Add(7 * time.Second)}}
		defer runCloser(t, log, store, 10)()
		time.Sleep(250 * time.Millisecond) // until it has told how far it is
		synctest.Wait()
		if diff := cmp.Diff([]string{"due"}, store.ids()); diff != "" || log.doneBelow() != 0 {
			t.Errorf("done below %d, closed (-want +got):\n%s", log.doneBelow(), diff)
		}
		time.Sleep(7*time.Second + 250*time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]string{"due", "nearly"}, store.ids()); diff != "" || log.doneBelow() != 2 {
			t.Errorf("7 s later: done below %d, closed (-want +got):\n%s", log.doneBelow(), diff)
		}
	})
}

func TestCloser_AnOrderWhoseDueMovedIsScheduledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &orderLog{}
		log.add(t, "moved")
		due := time.Now().Add(70 * time.Second)
		defer runCloser(t, log, &fakeStore{due: map[string]time.Time{"moved": due}}, 10)()
		synctest.Wait()
		again := log.Appended()["delay_1m"]
		if len(again) != 1 || log.doneBelow() != 1 {
			t.Fatalf("appended %v, done below %d", log.Appended(), log.doneBelow())
		}
		r, err := again[0].Decode()
		if err != nil || !r.Release.Equal(due) || !r.Order.Due.Equal(due) || r.NotDue != 1 {
			t.Errorf("%+v, %v; want it released when it is due, %v", r, err, due)
		}
	})
}

// TestCloser_AnOrderThatKeepsComingTooSoonWaitsInMemoryFirst: a relay whose clock is ahead
// sends it back at once, and the two must not do that without a pause.
func TestCloser_AnOrderThatKeepsComingTooSoonWaitsInMemoryFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, begin := &orderLog{}, time.Now()
		due := begin.Add(70 * time.Second)
		store := &fakeStore{due: map[string]time.Time{}}
		for rounds := range 4 {
			o := orderclose.Order{ID: fmt.Sprint("round-", rounds), CreatedAt: begin, Due: due}
			store.due[o.ID] = due
			log.put(t, toClose, orderclose.Record{Order: o, Release: due, NotDue: rounds})
		}
		defer runCloser(t, log, store, 10)()
		for _, c := range []struct {
			at   time.Duration
			want int // that are scheduled again by then
		}{{9 * time.Second, 2}, {11 * time.Second, 3}, {19 * time.Second, 3}, {21 * time.Second, 4}} {
			time.Sleep(time.Until(begin.Add(c.at)))
			synctest.Wait()
			again := slices.Concat(log.Appended()["delay_10s"], log.Appended()["delay_1m"])
			if len(again) != c.want {
				t.Errorf("after %v: %d were scheduled again, want %d", c.at, len(again), c.want)
			}
			for _, m := range again {
				if r, err := m.Decode(); err != nil || r.Release.Before(due) || r.NotDue == 0 {
					t.Errorf("%+v, %v; want it released when it is due, %v", r, err, due)
				}
			}
		}
	})
}

// keptAnswers is a service that answers an idempotency key the second time as it did
// the first.
type keptAnswers struct {
	fakeStore
	kept map[string]orderclose.Outcome
}

func (s *keptAnswers) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) (out []orderclose.Outcome, err error) {
	for _, r := range requests {
		key := httpclose.IdempotencyKey(r)
		if _, kept := s.kept[key]; !kept {
			o, err := s.fakeStore.CloseOrders(ctx, path, []orderclose.CloseRequest{r})
			if err != nil {
				return nil, err
			}
			s.kept[key] = o[0]
		}
		out = append(out, s.kept[key])
	}
	return out, nil
}

// TestCloser_AnOrderWhoseDueMovedALittleIsAskedForByTheNewOne, or the service repeats
// its first answer for ever.
func TestCloser_AnOrderWhoseDueMovedALittleIsAskedForByTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := time.Now().Add(8 * time.Second)
		log, store := &orderLog{}, &keptAnswers{fakeStore{due: map[string]time.Time{"moved": due}}, map[string]orderclose.Outcome{}}
		log.add(t, "moved")
		defer runCloser(t, log, store, 10)()
		time.Sleep(time.Minute)
		if at := store.at("moved"); !at.Equal(due) || log.doneBelow() != 1 || len(store.kept) != 2 {
			t.Errorf("closed at %v, want it at %v; done below %d", at, due, log.doneBelow())
		}
	})
}
