package closer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"orderclose"
)

func TestCloser_NothingIsDoneWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		log, store := &orderLog{}, &fakeStore{away: func() bool { return time.Since(begin) < time.Minute }}
		log.add(t, "a")
		defer runCloser(t, log, store, 10)()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if log.doneBelow() != 0 || len(log.Appended()) != 0 {
			t.Errorf("done below %d, appended %v; want nothing", log.doneBelow(), log.Appended())
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if log.doneBelow() != 1 || len(store.ids()) != 1 {
			t.Errorf("done below %d, closed %v", log.doneBelow(), store.ids())
		}
	})
}

// probedStore is a store whose probe fails for a while.
type probedStore struct {
	*fakeStore
	well func() bool
}

func (s probedStore) Probe(context.Context) error {
	if !s.well() {
		return fmt.Errorf("%w: nothing can be written", orderclose.ErrUnavailable)
	}
	return nil
}

// TestCloser_AnOrderIsNotBlamedForADatabaseThatTakesNothing: by an error that
// nobody knows, every order fails; the probe tells whose fault it is.
func TestCloser_AnOrderIsNotBlamedForADatabaseThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{bad: map[string]bool{"a": true, "b": true}}
		log.add(t, "a")
		log.add(t, "b")
		end := time.Now().Add(30 * time.Minute)
		defer runCloser(t, log, probedStore{store, func() bool { return !time.Now().Before(end) }}, 10)()
		time.Sleep(29 * time.Minute)
		if len(log.Appended()) != 0 || log.doneBelow() != 0 {
			t.Errorf("while the probe fails: done below %d, appended %v", log.doneBelow(), log.Appended())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := log.Appended()["delay_1m"]; len(got) != 2 || len(log.Appended()) != 1 || log.doneBelow() != 2 {
			t.Errorf("when it works: done below %d, appended %v; want both to be tried again", log.doneBelow(), log.Appended())
		}
	})
}
