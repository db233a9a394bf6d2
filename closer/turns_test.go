package closer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func testTurns(workers int) *turns {
	return newTurns(newPace(time.Second, 10, workers), workers, func(int) {})
}

// contend lets batches of ten of both lanes wait, and returns who was let in, in
// order, when one place is free at a time.
func contend(t *testing.T, fresh, replays int) string {
	turns := testTurns(1)
	_, leave, err := turns.enter(t.Context(), 10, false)
	if err != nil {
		t.Fatal(err)
	}
	in := make(chan byte, fresh+replays)
	wait := func(n int, replay bool, name byte) {
		for range n {
			go func() {
				_, leave, err := turns.enter(t.Context(), 10, replay)
				if err != nil {
					t.Error(err)
					return
				}
				in <- name
				leave()
			}()
		}
	}
	wait(replays, true, 'r')
	wait(fresh, false, 'f')
	synctest.Wait()
	leave()
	var order []byte
	for range fresh + replays {
		order = append(order, <-in)
	}
	return string(order)
}

func TestTurns_FreshOnesGoFirstAndReplaysNeverStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got, want := contend(t, 25, 3), "ffffffffffrffffffffffrfffffr"; got != want {
			t.Errorf("let in as %s, want %s", got, want)
		}
	})
}

func TestTurns_ReplaysLeavePlacesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := testTurns(4)
		turns.pace.limit = 1000
		let := make(chan bool, 10)
		for range 5 {
			go func() {
				_, leave, err := turns.enter(t.Context(), 1, true)
				let <- err == nil
				if err == nil {
					<-t.Context().Done()
					leave()
				}
			}()
		}
		synctest.Wait()
		if len(let) != 2 {
			t.Errorf("%d of 4 places are taken by replays, want 2", len(let))
		}
		_, leave, err := turns.enter(t.Context(), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	})
}

func TestTurns_ABatchThatWaitedIsNoLargerThanThePaceByThen(t *testing.T) {
	turns := testTurns(2)
	turns.change(func(p *pace, _ int) { p.failed(time.Now()) })
	n, leave, err := turns.enter(t.Context(), 10, false)
	if err != nil || n != turns.pace.least || turns.inFlight != n {
		t.Errorf("%d of 10 may go, %d are in flight, %v; want %d", n, turns.inFlight, err, turns.pace.least)
	}
	leave()
	if turns.inFlight != 0 {
		t.Errorf("%d are in flight after all", turns.inFlight)
	}
}

func TestTurns_WhoeverStopsWaitingLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := testTurns(2)
		turns.pace.limit = 10
		_, leave, _ := turns.enter(t.Context(), 8, false)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, _, err := turns.enter(ctx, 5, false) // too many beside 8
			gone <- err
		}()
		synctest.Wait()
		small := make(chan func())
		go func() {
			_, leave, _ := turns.enter(t.Context(), 2, false)
			small <- leave
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; err == nil {
			t.Error("let in beside 8, with a pace of 10")
		}
		(<-small)()
		leave()
		if turns.running != 0 || turns.inFlight != 0 || len(turns.fresh) != 0 {
			t.Errorf("left behind: %+v", turns)
		}
	})
}
