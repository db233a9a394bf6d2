package closer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"orderclose"
)

// desk is turns whose transactions wait to be let go, one by one.
type desk struct {
	*turns
	t    *testing.T
	let  chan error
	mu   sync.Mutex
	seen []string // the orders of each transaction, as it begins
}

func newDesk(t *testing.T, workers int) *desk {
	d := &desk{t: t, let: make(chan error)}
	d.turns = newTurns(newPace(time.Second, 10, workers), workers, 10, d.transaction, func(int) {})
	return d
}

func (d *desk) transaction(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	var ids []string
	outcomes := make([]orderclose.Outcome, len(requests))
	for i, r := range requests {
		ids = append(ids, r.OrderID)
		outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed}
	}
	d.mu.Lock()
	d.seen = append(d.seen, strings.Join(ids, " "))
	d.mu.Unlock()
	select {
	case err := <-d.let:
		return outcomes, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// orders are so many requests with ids that begin with the name.
func orders(name string, n int) []orderclose.CloseRequest {
	requests := make([]orderclose.CloseRequest, n)
	for i := range requests {
		requests[i].OrderID = fmt.Sprintf("%s%d", name, i)
	}
	return requests
}

// answer is what a turn got.
type answer struct {
	outcomes []orderclose.Outcome
	err      error
}

// wait waits for a turn in the background.
func (d *desk) wait(ctx context.Context, name string, n int, replay bool) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		outcomes, err := d.close(ctx, orders(name, n), replay, func() {})
		got <- answer{outcomes, err}
	}()
	synctest.Wait()
	return got
}

// finish lets everything end and wants nothing left behind.
func (d *desk) finish() {
	d.t.Helper()
	close(d.let)
	synctest.Wait()
	if d.running != 0 || d.replaying != 0 || d.inFlight != 0 || len(d.fresh) != 0 || len(d.replays) != 0 {
		d.t.Errorf("left behind: %+v", d.turns)
	}
}

func TestTurns_FreshOnesGoFirstAndReplaysNeverStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1)
		d.wait(t.Context(), "first", 10, false)
		for range 3 {
			d.wait(t.Context(), "r", 10, true) // the pace leaves five of them
		}
		for range 25 {
			d.wait(t.Context(), "f", 10, false)
		}
		d.finish()
		var order strings.Builder
		for _, ids := range d.seen[1:] {
			order.WriteByte(ids[0])
		}
		if got, want := order.String(), "ffffffffffrffffffffffrfffffr"; got != want {
			t.Errorf("let in as %s, want %s", got, want)
		}
	})
}

func TestTurns_WhatWaitsGoesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1)
		d.wait(t.Context(), "a", 1, false)
		b, c, e := d.wait(t.Context(), "b", 3, false), d.wait(t.Context(), "c", 6, false), d.wait(t.Context(), "e", 2, false)
		d.let <- nil
		synctest.Wait()
		if want := "b0 b1 b2 c0 c1 c2 c3 c4 c5"; len(d.seen) != 2 || d.seen[1] != want {
			t.Fatalf("transactions of %q; want the second to be %q, as ten may go together", d.seen, want)
		}
		d.let <- nil
		for name, got := range map[string]answer{"b": <-b, "c": <-c} {
			if want := len(orders(name, map[string]int{"b": 3, "c": 6}[name])); got.err != nil || len(got.outcomes) != want || got.outcomes[0].OrderID != name+"0" {
				t.Errorf("%s got %+v, want its own %d", name, got, want)
			}
		}
		failed := errors.New("away")
		d.let <- failed
		if got := <-e; !errors.Is(got.err, failed) {
			t.Errorf("got %+v, want the error", got)
		}
		d.finish()
	})
}

func TestTurns_ReplaysLeavePlacesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 4)
		d.pace.limit = 1000
		for range 5 {
			d.wait(t.Context(), "r", 1, true)
		}
		if d.replaying != 2 {
			t.Errorf("%d of 4 places are taken by replays, want 2", d.replaying)
		}
		d.wait(t.Context(), "f", 1, false)
		if d.seen[len(d.seen)-1] != "f0" {
			t.Errorf("a fresh order waits beside two replays: %q", d.seen)
		}
		d.finish()
	})
}

func TestTurns_ABatchThatWaitedIsNoLargerThanThePaceByThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 2)
		d.change(func(p *pace, _ int) { p.failed(time.Now()) })
		got := d.wait(t.Context(), "a", 10, false)
		if d.inFlight != d.pace.least {
			t.Errorf("%d are in flight, want %d", d.inFlight, d.pace.least)
		}
		d.finish()
		if n := len((<-got).outcomes); n != d.pace.least {
			t.Errorf("%d of 10 went, want %d", n, d.pace.least)
		}
	})
}

func TestTurns_WhoeverStopsWaitingLeavesNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 2)
		d.wait(t.Context(), "a", 8, false)
		ctx, cancel := context.WithCancel(t.Context())
		gone := d.wait(ctx, "b", 5, false) // too many beside 8
		d.wait(t.Context(), "c", 2, false)
		if len(d.seen) != 1 {
			t.Fatalf("%q were let in, with a pace of 10", d.seen)
		}
		cancel()
		if got := <-gone; got.err == nil {
			t.Error("let in beside 8, with a pace of 10")
		}
		synctest.Wait()
		if len(d.seen) != 2 || d.seen[1] != "c0 c1" {
			t.Errorf("%q; want those behind to go", d.seen)
		}
		d.finish()
	})
}

func TestTurns_ATransactionGoesOnWhileAnybodyWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1)
		d.wait(t.Context(), "a", 1, false)
		one, stopOne := context.WithCancel(t.Context())
		two, stopTwo := context.WithCancel(t.Context())
		b, c := d.wait(one, "b", 1, false), d.wait(two, "c", 1, false)
		d.let <- nil
		stopOne()
		if got := <-b; !errors.Is(got.err, context.Canceled) {
			t.Errorf("who has left got %+v", got)
		}
		synctest.Wait()
		if d.running != 1 {
			t.Error("the transaction ended with the first who left")
		}
		stopTwo()
		<-c
		synctest.Wait()
		if d.running != 0 {
			t.Error("the transaction goes on, and nobody wants it")
		}
		d.finish()
	})
}
