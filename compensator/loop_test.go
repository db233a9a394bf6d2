package compensator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

var discard = slog.New(slog.DiscardHandler)

// seeds are how often each case is played, each time with other times.
func seeds() uint64 {
	if ring.All() {
		return 10
	}
	return 1
}

// beside are the cases in which healthy orders are lost beside others.
var beside = []struct {
	name   string
	before func(w *world) // before the first process starts
	big    bool           // it takes seconds: only with all seeds
}{
	{name: "nothing"},
	{name: "10 without stock", before: some(shown, 10)},
	{name: "5,000 without stock", before: some(shown, 5000)},
	{name: "100,000 without stock", big: true, before: some(shown, 100_000)},
	{name: "5,000 with a cause each", big: true, before: some(ownCause, 5000)},
	{name: "20,000 pending", before: some(pending, 20_000)},
	{name: "50,000 pending", big: true, before: some(pending, 50_000)},
	{name: "5,000 pending due in one second", before: func(w *world) {
		w.add(pending, "", "same", spread(w.r, 5000, w.now().Add(time.Minute), w.now().Add(61*time.Second))...)
	}},
	{name: "100 of a shard that is down", before: some(silent, 100)},
	{name: "2,000 of a shard that is down", before: some(silent, 2000)},
	{name: "one on which the store hangs", before: some(hanging, 1)},
	{name: "contended", before: some(contended, 1000)},
	{name: "a service says not due", big: true, before: some(notDue, 20_000)},
	{name: "100,000 paused", big: true, before: func(w *world) {
		some(healthy, 100_000, "virtual")(w)
		w.setPauses(Pause{Category: "virtual", Until: w.now().Add(24 * time.Hour)})
	}},
	{name: "100,000 excluded", big: true, before: func(w *world) {
		some(healthy, 100_000, "test")(w)
		w.excluded = "test"
	}},
}

// some returns a function that adds orders that were due within the last hour.
func some(t trouble, n int, category ...string) func(w *world) {
	return func(w *world) {
		c := ""
		if len(category) > 0 {
			c = category[0]
		}
		w.add(t, c, fmt.Sprintf("old%d", t), spread(w.r, n, w.now().Add(-time.Hour), w.now().Add(-10*time.Second))...)
	}
}

func TestLoop_HealthyOrdersCloseInHalfAMinuteBesideOthers(t *testing.T) {
	for _, c := range beside {
		t.Run(c.name, func(t *testing.T) {
			if c.big && !ring.All() {
				t.Skip("it takes seconds")
			}
			worst, killed := time.Duration(0), time.Duration(0)
			for seed := range seeds() {
				play(t, seed, func(w *world) {
					if c.before != nil {
						c.before(w)
					}
					w.process("a")
					w.probe(5 * time.Minute)
					time.Sleep(time.Minute)
					worst = max(worst, w.worst(w.probes))
				})
				play(t, seed, func(w *world) {
					if c.before != nil {
						c.before(w)
					}
					w.process("a")
					w.probe(4 * time.Minute)
					w.kill("a")
					w.process("b")
					w.probe(4 * time.Minute)
					time.Sleep(time.Minute)
					killed = max(killed, w.worst(w.probes))
				})
			}
			t.Logf("worst %v, with the holder killed %v", worst, killed)
			bound := 30 * time.Second
			expect.That(t, worst <= bound && killed <= bound+18*time.Second, "a lost order is closed after %v, with the holder killed %v", worst, killed)
		})
	}
}

// watchGauge notes by how much the gauge of what was not asked is too low for a probe, each second.
func (w *world) watchGauge() (worst *time.Duration) {
	worst = new(time.Duration)
	w.running.Go(func() {
		for w.ctx.Err() == nil {
			shown := time.Duration(0)
			for _, c := range w.compensators() {
				shown = max(shown, gaugeOf(c.metrics.untried))
			}
			w.mu.Lock()
			for _, o := range w.probes {
				if o.open {
					*worst = max(*worst, w.now().Sub(o.Due)-5*time.Second-shown)
				}
			}
			w.mu.Unlock()
			retry.Sleep(w.ctx, time.Second)
		}
	})
	return worst
}

func TestLoop_TheGaugeShowsHowLateTheOldestOrderIsThatWasNotAsked(t *testing.T) {
	for _, c := range []int{0, 5, 8, 10} {
		t.Run(beside[c].name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				if c := beside[c]; c.before != nil {
					c.before(w)
				}
				w.process("a")
				worst := w.watchGauge()
				w.probe(3 * time.Minute)
				w.change(func() { w.down = errBroken })
				w.probe(3 * time.Minute)
				w.change(func() {
					expect.That(t, *worst <= time.Second, "the gauge is %v too low", *worst)
				})
			})
		})
	}
}

func TestLoop_ManyLostOrdersCloseByTheRate(t *testing.T) {
	for _, n := range []int{1, 500, 20_000, 100_000, 200_000} {
		for _, others := range []int{0, 20_000} {
			t.Run(fmt.Sprintf("%d beside %d pending", n, others), func(t *testing.T) {
				if !ring.All() && (n > 100_000 || others > 0 && n != 500) {
					t.Skip("it takes seconds")
				}
				play(t, 1, func(w *world) {
					some(pending, others)(w)
					w.process("a")
					time.Sleep(10*time.Minute + time.Duration(w.r.Int64N(int64(20*time.Second))))
					now := w.now()
					lost := w.add(healthy, "", "lost", spread(w.r, n, now.Add(-time.Second), now)...)
					rate := 5000.
					if others > 0 {
						rate *= .75
					}
					bound := 12*time.Second + time.Duration(float64(n)/rate*float64(time.Second))
					w.within(2*bound, lost)
					if late := w.worst(lost); late > bound {
						t.Errorf("the last one is closed after %v; want %v", late, bound)
					} else {
						t.Logf("%v of %v", late, bound)
					}
				})
			})
		}
	}
}

func TestLoop_OrdersThatStayOpenAreTriedSeldomAndEqually(t *testing.T) {
	for _, c := range []struct {
		trouble trouble
		n       int
		cost    time.Duration
	}{{pending, 20_000, 5 * time.Millisecond}, {pending, 50_000, 20 * time.Millisecond}, {notDue, 2000, 0}, {shown, 2000, 0},
		{pending, 2000, 5 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%d of kind %d at %v", c.n, c.trouble, c.cost), func(t *testing.T) {
			if !ring.All() && c.n > 2000 {
				t.Skip("it takes seconds")
			}
			play(t, 1, func(w *world) {
				w.askCost = c.cost
				orders := w.add(c.trouble, "", "old", spread(w.r, c.n, w.now().Add(-time.Hour), w.now().Add(-time.Minute))...)
				w.process("a")
				time.Sleep(6 * time.Minute)
				most := 0
				w.change(func() {
					for _, o := range orders {
						most = max(most, len(o.tries))
					}
				})
				expect.That(t, most <= 7, "an order is tried %d times in its first six minutes", most)
				round := max(5*time.Minute, time.Duration(c.n)*c.cost/pagesAtOnce)
				time.Sleep(2 * round)
				from := time.Now()
				time.Sleep(4 * round)
				least, most := 1<<30, 0
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, o := range orders {
					n := 0
					for _, at := range o.tries {
						if at.After(from) {
							n++
						}
					}
					least, most = min(least, n), max(most, n)
				}
				expect.That(t, least >= 3 && most-least <= 2, "in four times %v orders are tried between %d and %d times", round, least, most)
			})
		})
	}
}

func TestLoop_WhatCouldNotBeClosedIsTriedWithinFiveMinutesOfTheEndOfTheFault(t *testing.T) {
	for _, n := range []int{2000, 20_000, 100_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if !ring.All() && n > 2000 {
				t.Skip("it takes seconds")
			}
			play(t, 1, func(w *world) {
				w.askCost = 5 * time.Millisecond
				orders := w.add(pending, "", "old", spread(w.r, n, w.now().Add(-time.Hour), w.now().Add(-10*time.Second))...)
				w.process("a")
				time.Sleep(time.Hour)
				w.cure(orders...)
				bound := 5*time.Minute + time.Duration(n)*(w.askCost+time.Millisecond)/pagesAtOnce
				took := w.within(2*bound, orders)
				expect.That(t, took <= bound, "all are closed after %v; want %v", took, bound)
			})
		})
	}
}

func TestLoop_PausedOrdersCloseWhenThePauseEnds(t *testing.T) {
	play(t, 1, func(w *world) {
		n := 100_000
		if !ring.All() {
			n = 20_000
		}
		paused := w.add(healthy, "virtual", "paused", spread(w.r, n, w.now().Add(-time.Hour), w.now().Add(-10*time.Second))...)
		others := w.add(healthy, "VIRTUAL", "other", w.now(), w.now(), w.now())
		w.setPauses(Pause{Category: "virtual", Until: w.now().Add(5 * time.Minute)})
		w.process("a")
		w.probe(4 * time.Minute)
		w.change(func() {
			for _, o := range paused {
				expect.That(t, o.open, "order %s is closed during the pause", o.ID)
			}
		})
		time.Sleep(time.Until(w.started.Add(5 * time.Minute)))
		w.running.Go(func() { w.probe(2 * time.Minute) })
		bound := 12*time.Second + time.Duration(n)*time.Second/5000
		took := w.within(2*bound, paused)
		expect.That(t, took <= bound, "all are closed %v after the pause; want %v", took, bound)
		time.Sleep(3 * time.Minute)
		w.change(func() { others = append(others, w.probes...) })
		late := w.worst(others)
		expect.That(t, late <= 30*time.Second, "a lost order of another category is closed after %v", late)
		h := w.hour()
		expect.That(t, h.AfterPause >= int64(n)*9/10 && h.Missed <= int64(len(others)), "counts %+v", h.Counts)
	})
}

// The loop reads the pauses of the database. A Store of a program says so at each call.
func TestLoop_APauseOfAllKeepsOrdersOpen(t *testing.T) {
	for _, own := range []bool{false, true} {
		play(t, 1, func(w *world) {
			orders := w.add(healthy, "", "o", spread(w.r, 100, w.now().Add(-time.Hour), w.now().Add(-10*time.Second))...)
			w.setPauses(Pause{Until: w.now().Add(70 * time.Minute)})
			if own {
				w.options = func(o *Options) { o.Store, o.Reader = ownStore{w.shop}, nil }
			}
			w.process("a")
			time.Sleep(69 * time.Minute)
			n, late := w.openOrders(), gaugeOf(w.compensators()[0].metrics.untried)
			expect.That(t, n == len(orders) && late < time.Minute, "own %v: in the pause %d orders are closed, and the gauge is at %v", own, len(orders)-n, late)
			expect.Equal(t, w.hour().State, overdue.Finished, "own %v: the hour of a pause", own)
			time.Sleep(time.Minute)
			expect.AtMost(t, w.within(time.Minute, orders), 12*time.Second, "own %v: the time after the pause until all are closed", own)
			time.Sleep(time.Minute)
			expect.Equal(t, w.hour().Missed, int64(0), "own %v: orders of the pause that count as missed by the pipeline", own)
		})
	}
}

func TestLoop_AnOrderThatIsUnpaidAgainIsFoundBesideAMillionPaused(t *testing.T) {
	for _, n := range []int{500, 2000, 100_000} {
		if n > 2000 && !ring.All() {
			continue
		}
		play(t, uint64(n), func(w *world) {
			w.add(healthy, "virtual", "paused", spread(w.r, n, w.now().Add(-2*time.Hour), w.now().Add(time.Minute))...)
			w.setPauses(Pause{Category: "virtual", Until: w.now().Add(24 * time.Hour)})
			again := w.add(healthy, "", "again", w.now().Add(-time.Minute))
			again[0].open = false
			w.process("a")
			time.Sleep(15 * time.Minute)
			w.reopen(again...)
			took := w.within(5*time.Minute, again)
			expect.That(t, took <= 30*time.Second, "beside %d paused orders it is closed after %v", n, took)
		})
	}
}

func TestLoop_ReadsThatTakeLongGetShorter(t *testing.T) {
	ring.OnlyAll(t, "none")
	play(t, 1, func(w *world) {
		// Dead entries of closed orders: a read of all of them would take four seconds.
		for _, o := range w.add(healthy, "", "dead", spread(w.r, 1_000_000, w.now().Add(-time.Hour), w.now().Add(-time.Minute))...) {
			o.open = false
		}
		old := w.add(healthy, "", "old", spread(w.r, 20, w.now().Add(-time.Hour), w.now().Add(-time.Minute))...)
		w.process("a")
		w.probe(2 * time.Minute)
		late := w.worst(w.probes)
		expect.That(t, late <= 30*time.Second && w.openOrders() == 0, "a lost order is closed after %v, %d of %d old ones are open", late, w.openOrders(), len(old))
		w.change(func() {
			expect.That(t, w.slow <= 20, "%d reads took too long", w.slow)
		})
	})
}

func TestLoop_AClockThatIsSetBackHidesNoOrder(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour, -10 * time.Minute} {
		play(t, 1, func(w *world) {
			w.process("a")
			w.probe(time.Minute)
			w.change(func() { w.ahead += by })
			w.probes = nil
			w.probe(2 * time.Minute)
			time.Sleep(30 * time.Second)
			late := w.worst(w.probes)
			expect.That(t, late <= 30*time.Second, "after the clock was set by %v a lost order is closed after %v", by, late)
		})
	}
}

func TestLoop_AProcessThatCannotWorkGivesTheLockBack(t *testing.T) {
	for _, how := range []string{"reads fail", "closes fail", "finds nothing"} {
		t.Run(how, func(t *testing.T) {
			play(t, 1, func(w *world) {
				w.options = func(o *Options) {
					switch bad := (broken{w.shop, how}); how {
					case "finds nothing": // another version of the file has another lock
						o.Reader, o.LockKey = bad, "of another version"
					default:
						o.Store, o.Reader = bad, bad
					}
				}
				w.process("bad")
				time.Sleep(10 * time.Second)
				w.options = nil
				w.process("good")
				w.probe(4 * time.Minute)
				time.Sleep(time.Minute)
				late := w.worst(w.probes[9:])
				expect.That(t, late <= 48*time.Second, "a lost order is closed after %v", late)
				if late := w.worst(w.probes); late > 90*time.Second {
					t.Errorf("the first lost orders are closed after %v", late)
				}
			})
		})
	}
}

// broken is a shop of which a process cannot use a part.
type broken struct {
	*shop
	how string
}

var errBroken = fmt.Errorf("%w: %w: the right is missing", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault)

func (b broken) ReadOverdue(ctx context.Context, w overdue.Window) (overdue.Found, error) {
	switch b.how {
	case "reads fail":
		return overdue.Found{}, errBroken
	case "finds nothing":
		return overdue.Found{All: true}, nil
	}
	return b.shop.ReadOverdue(ctx, w)
}

func (b broken) CloseOrders(ctx context.Context, p orderclose.Path, r []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if b.how == "closes fail" {
		return nil, errBroken
	}
	return b.shop.CloseOrders(ctx, p, r)
}

func TestLoop_AnOutageOfTheDatabaseEndsWithItsEnd(t *testing.T) {
	play(t, 1, func(w *world) {
		w.process("a")
		w.process("b")
		time.Sleep(time.Minute)
		w.change(func() { w.down, w.leaseErr = errBroken, errBroken })
		w.probe(time.Hour)
		w.change(func() { w.down, w.leaseErr = nil, nil })
		took := w.within(2*time.Minute, w.probes)
		expect.That(t, took <= 30*time.Second, "all are closed %v after the outage", took)
		time.Sleep(time.Minute)
		h := w.hour()
		expect.That(t, h.AfterFailure >= int64(len(w.probes)) && h.Missed <= 0, "counts %+v", h.Counts)
	})
}

func TestLoop_AStoreThatGivesNoVerdictMakesNoOrderRest(t *testing.T) {
	play(t, 1, func(w *world) {
		w.process("a")
		time.Sleep(time.Minute)
		w.change(func() { w.mute = true })
		w.probe(10 * time.Minute)
		w.change(func() { w.mute = false })
		took := w.within(2*time.Minute, w.probes)
		expect.That(t, took <= 30*time.Second, "all are closed %v after the store answers again", took)
	})
}

// Nothing shows who is at fault. The loop goes on, so nobody is told that it stands still, and a later order counts as missed.
func TestLoop_OneOrderWithoutAVerdictAloneStopsNoPass(t *testing.T) {
	play(t, 1, func(w *world) {
		w.add(silent, "", "bad", w.now().Add(-10*time.Minute))
		w.process("a")
		time.Sleep(10 * time.Minute)
		expect.AtMost(t, gaugeOf(w.compensators()[0].metrics.untried), time.Minute, "the time for which no order may have been asked for")
		w.probe(time.Minute)
		time.Sleep(time.Minute)
		expect.Equal(t, w.hour().Missed, int64(len(w.probes)), "missed orders")
	})
}

func TestLoop_TheNewestAndTheOldestOrdersKeepNoneWaiting(t *testing.T) {
	play(t, 1, func(w *world) {
		w.process("a")
		time.Sleep(time.Minute)
		w.change(func() { w.mute = true })
		begin := w.now()
		w.add(silent, "", "old", spread(w.r, 10, begin, begin.Add(time.Minute))...)
		between := w.add(healthy, "", "between", spread(w.r, 100, begin.Add(time.Minute), begin.Add(2*time.Minute))...)
		w.add(silent, "", "new", spread(w.r, 2, begin.Add(2*time.Minute), begin.Add(3*time.Minute))...)
		time.Sleep(10 * time.Minute)
		w.change(func() { w.mute = false })
		took := w.within(10*time.Minute, between)
		expect.That(t, took <= 2*time.Minute, "all are closed %v after the store answers again", took)
	})
}

func TestLoop_LeavesTheGraceToThePipeline(t *testing.T) {
	play(t, 1, func(w *world) {
		w.process("a")
		w.probe(time.Minute)
		time.Sleep(20 * time.Second)
		w.change(func() {
			for _, o := range w.probes {
				early := o.closed.Sub(o.Due)
				expect.That(t, early >= Grace, "an order is closed %v after it was due", early)
			}
		})
	})
}

func TestLoop_EachKindOfOrdersHasAShareOfEachTurn(t *testing.T) {
	play(t, 1, func(w *world) { // older orders beside news that take long
		w.process("a")
		time.Sleep(time.Minute)
		w.change(func() { w.askCost = 15 * time.Millisecond })
		w.add(pending, "", "news", spread(w.r, 20_000, w.now().Add(-Grace-2*time.Second), w.now().Add(-Grace))...)
		again := w.add(healthy, "", "again", w.now().Add(-time.Hour))
		expect.AtMost(t, w.within(2*time.Minute, again), 30*time.Second, "the time until an older order is closed beside news")
	})
	play(t, 1, func(w *world) { // orders whose rest has ended beside a pass that takes two minutes
		w.change(func() { w.cost = 2 * time.Millisecond })
		locked := w.add(contended, "", "locked", w.now())
		w.process("a")
		time.Sleep(time.Minute)
		w.add(healthy, "", "lost", spread(w.r, 90_000, w.now().Add(-time.Hour), w.now().Add(-time.Minute))...)
		time.Sleep(40 * time.Second)
		w.cure(locked...)
		expect.AtMost(t, w.within(2*time.Minute, locked), 20*time.Second, "the time until an order that is free is closed beside older orders")
	})
	play(t, 1, func(w *world) { // the same at one order a second
		w.options = func(o *Options) { o.Rate = 1 }
		w.add(healthy, "", "lost", spread(w.r, 1000, w.now().Add(-time.Hour), w.now().Add(-time.Minute))...)
		locked := w.add(contended, "", "locked", w.now().Add(-2*time.Hour), w.now().Add(-2*time.Hour))
		w.process("a")
		time.Sleep(time.Minute)
		w.cure(locked...)
		expect.AtMost(t, w.within(2*time.Minute, locked), 20*time.Second, "the time until orders that are free are closed at one order a second")
	})
}

func TestLoop_AnOrderThatASearchDidNotReachIsAskedInTheNextTurn(t *testing.T) {
	play(t, 1, func(w *world) {
		w.cost = 2 * time.Millisecond
		w.options = func(o *Options) { o.PageSize = 2000 } // a search of two seconds reaches a part of the page
		begin := w.now().Add(-2 * time.Hour)
		w.add(ownCause, "", "bad", spread(w.r, 1999, begin, begin.Add(time.Minute))...)
		shared := w.add(healthy, "", "shared", begin.Add(2*time.Minute))
		w.add(healthy, "", "later", spread(w.r, 90_000, begin.Add(time.Hour), w.now().Add(-2*time.Minute))...) // the pass takes 90 s
		w.process("a")
		took := w.within(2*time.Minute, shared)
		expect.That(t, took <= 30*time.Second, "it is closed after %v", took)
	})
}

func TestLoop_NamesTheOrdersThatFailOnce(t *testing.T) {
	var lines bytes.Buffer
	play(t, 1, func(w *world) {
		w.options = func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&lines, nil)) }
		some(shown, 50)(w)
		w.process("a")
		time.Sleep(30 * time.Minute)
	})
	n := strings.Count(lines.String(), "order not closed")
	expect.That(t, n == 1 && strings.Contains(lines.String(), "stock_row_missing"), "%d lines in half an hour:\n%s", n, lines.String())
}

func TestHour_ItsPassBeginsInIt(t *testing.T) {
	begin := time.Unix(7200, 0)
	for _, c := range []struct {
		state   string
		now     time.Duration
		p       pass
		becomes string
	}{
		{"", time.Minute, pass{beganAt: begin.Add(time.Second), ended: begin}, overdue.Finished},
		{"", time.Minute, pass{beganAt: begin.Add(-time.Second), ended: begin}, ""},
		{"", time.Minute, pass{beganAt: begin.Add(time.Second), running: true}, ""},
		{"", 31 * time.Minute, pass{beganAt: begin.Add(time.Second), running: true}, overdue.Unfinished},
		{overdue.Unfinished, 32 * time.Minute, pass{beganAt: begin.Add(time.Second), running: true}, ""},
		{overdue.Unfinished, 40 * time.Minute, pass{beganAt: begin.Add(time.Second), ended: begin}, overdue.Finished},
		{overdue.Finished, 40 * time.Minute, pass{beganAt: begin.Add(time.Second), ended: begin}, ""},
	} {
		h := hour{begin: begin, state: c.state}
		_, got := h.ended(begin.Add(c.now), time.Hour, c.p)
		expect.That(t, got == c.becomes, "%+v: becomes %q", c, got)
	}
}

func TestPauses_TheEndOfOneIsSeen(t *testing.T) {
	now := time.Unix(1e9, 0)
	all, one := []Pause{{Until: now}}, []Pause{{Category: "a", Until: now}}
	for _, c := range []struct {
		before, on []Pause
		want       bool
	}{
		{nil, nil, false},
		{all, nil, true},
		{all, all, false},
		{one, nil, true},
		{one, one, false},
		{one, []Pause{{Category: "A", Until: now}}, true},
	} {
		then := now.Add(-time.Second)
		expect.Equal(t, pauseEnded(pausesAt(c.before, then), pausesAt(c.on, then)), c.want, "%+v", c)
	}
	expect.That(t, len(pausesAt(append(all, one...), now)) == 0, "a pause is on at its end")
}

// A hanging order among 60 others, of which the slow lane finds it while the fast lane goes on.
func TestLanes_ASearchEndsSoon(t *testing.T) {
	play(t, 1, func(w *world) {
		lanes := must.Get(New(Options{Store: w.shop, Logger: discard, OnHang: func(string) {}}))(t).newLoop().lanes
		var page []orderclose.Order
		for _, o := range append(w.add(healthy, "", "good", spread(w.r, 60, w.now().Add(-time.Hour), w.now())...), w.add(hanging, "", "bad", w.now())...) {
			page = append(page, o.Order)
		}
		began := time.Now()
		lanes.give(page)
		lanes.search.Start(w.ctx)
		must.Do(t, lanes.search.Wait())
		took, failed := time.Since(began), 0
		for _, r := range lanes.noted() {
			if r.err != nil {
				failed += len(r.orders)
			}
		}
		expect.That(t, took <= 15*time.Second && failed == 1 && w.openOrders() == 1, "a search takes %v, %d failed, %d are open", took, failed, w.openOrders())
	})
}

// A store that takes some time for a call, whatever it has to do, gets full pages again after pages that failed. One that takes it for each
// order gets small ones.
func TestPageSize_FollowsWhatMoreOrdersTake(t *testing.T) {
	for _, c := range []struct {
		call, order time.Duration
		least, most int
	}{
		{time.Millisecond, 100 * time.Microsecond, 500, 500},
		{600 * time.Millisecond, 0, 500, 500},
		{1500 * time.Millisecond, time.Millisecond, 250, 500},
		{2500 * time.Millisecond, 0, 250, 500},
		{0, 20 * time.Millisecond, 15, 100},
		{0, time.Second, 1, 2},
	} {
		for _, begin := range []int{1, 32, 500} {
			p := pageSize{orders: begin}
			for range 30 {
				p.succeeded(p.orders, c.call+time.Duration(p.orders)*c.order, 500)
			}
			least, most := p.orders, p.orders
			for range 10 {
				p.succeeded(p.orders, c.call+time.Duration(p.orders)*c.order, 500)
				least, most = min(least, p.orders), max(most, p.orders)
			}
			expect.That(t, least >= c.least && most <= c.most, "%v a call and %v an order, from %d: pages of %d to %d", c.call, c.order, begin, least, most)
		}
	}
}

// The holder before may have died in the middle of its news, so the first ones of a process begin earlier than those of later turns.
func TestTurn_TheFirstNewsOfAProcessReachBackAMinute(t *testing.T) {
	cutoff := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	first := cutoff.Sub(newsSince(time.Time{}, cutoff))
	expect.That(t, first == time.Minute, "the first news begin %v before the cutoff, want a minute", first)
	for back, want := range map[time.Duration]time.Duration{turnTime: turnTime + newsBack, 0: newsBack, -turnTime: newsBack} {
		got := cutoff.Sub(newsSince(cutoff.Add(-back), cutoff))
		expect.That(t, got == want, "news after a turn whose cutoff was %v earlier begin %v before the cutoff, want %v", back, got, want)
	}
}

func TestTurn_IsFollowedAtOnceIfItLeftOrders(t *testing.T) {
	for _, c := range []struct {
		took, every time.Duration
		left        bool
		want        time.Duration
	}{{time.Second, 30 * time.Second, false, 29 * time.Second}, {time.Second, 30 * time.Second, true, 0}, {40 * time.Second, 30 * time.Second, false, 0}} {
		expect.Equal(t, nextTurn(c.took, c.every, c.left), c.want, "%+v", c)
	}
	hourly := must.Get(New(Options{Store: &shop{}, Every: time.Hour, Logger: discard}))(t).newLoop()
	expect.Equal(t, fmt.Sprint(hourly.judge(context.DeadlineExceeded), hourly.judge(nil)), "5s 1h0m0s", "after a failed turn, and a good one")
}

// sameAgain is a Store whose pages do not move on.
type sameAgain struct{ ownStore }

func (s sameAgain) Overdue(ctx context.Context, cutoff time.Time, _ orderclose.Order, limit int) ([]orderclose.Order, error) {
	return s.ownStore.Overdue(ctx, cutoff, orderclose.Order{}, limit)
}

func TestSweep_EndsIfThePagesOfAStoreDoNotMoveOn(t *testing.T) {
	play(t, 1, func(w *world) {
		some(shown, 10)(w)
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		_, err := must.Get(New(Options{Store: sameAgain{ownStore{w.shop}}, PageSize: 10, Logger: discard}))(t).Sweep(ctx, false)
		expect.That(t, err != nil && strings.Contains(err.Error(), "must begin after"), "%v", err)
	})
}

func TestLoop_MoreOrdersThanCanRestKeepNoneWaiting(t *testing.T) {
	ring.OnlyAll(t, "none")
	const n = 300_000
	play(t, 1, func(w *world) {
		orders := w.add(shown, "", "bad", spread(w.r, n, w.now().Add(-2*time.Hour), w.now().Add(-time.Minute))...)
		w.process("a")
		w.probe(15 * time.Minute)
		time.Sleep(time.Minute)
		late := w.worst(w.probes)
		expect.That(t, late <= 30*time.Second, "a lost order is closed after %v", late)
		never, most := 0, 0
		for _, o := range orders {
			if most = max(most, len(o.tries)); len(o.tries) == 0 {
				never++
			}
		}
		expect.That(t, never <= 0 && most <= 10, "%d orders were never tried, one was tried %d times", never, most)
	})
}

func TestLoop_ALockedOrderClosesSoonAfterItIsFree(t *testing.T) {
	play(t, 1, func(w *world) {
		locked := w.add(contended, "", "locked", w.now().Add(-10*time.Second))
		w.process("a")
		w.probe(10 * time.Minute)
		w.cure(locked...)
		took := w.within(time.Minute, locked)
		expect.That(t, took <= 15*time.Second, "it is closed %v after it is free", took)
	})
}

// Its calls reach the limit that suffices for all others.
func TestLoop_AnOrderThatNeedsLongClosesBesideQuickOnes(t *testing.T) {
	play(t, 1, func(w *world) {
		w.process("a")
		w.probe(time.Minute)
		slow := w.add(lengthy, "", "lengthy", w.now())
		w.probe(2 * time.Minute)
		late := w.worst(w.probes)
		expect.That(t, !slow[0].open && late <= 30*time.Second, "it is open: %v; another one is closed after %v", slow[0].open, late)
	})
}

// The orders beside it are refused together. Most of their pages are not searched to the end.
func TestLoop_AnOrderThatHasHealedClosesBesideOthersThatFail(t *testing.T) {
	play(t, 1, func(w *world) {
		orders := w.add(ownCause, "", "refused", spread(w.r, 300, w.now().Add(-time.Hour), w.now().Add(-time.Minute))...)
		w.process("a")
		w.probe(20 * time.Minute)
		tries := func() (n int) {
			w.change(func() {
				for _, o := range orders {
					n += len(o.tries)
				}
			})
			return n
		}
		before := tries()
		time.Sleep(time.Hour)
		expect.AtMost(t, tries()-before, len(orders)*12*2, "tries of refused orders in an hour")
		w.cure(orders[len(orders)-1])
		took := w.within(30*time.Minute, orders[len(orders)-1:])
		expect.That(t, took <= 16*time.Minute, "it is closed after %v, counted from when it has healed", took)
	})
}

func TestLoop_AloneClosesWithinItsInterval(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
		play(t, 1, func(w *world) {
			w.options = func(o *Options) { o.Alone, o.Every = true, every }
			w.process("a")
			time.Sleep(time.Second)
			w.probe(5 * time.Minute)
			time.Sleep(time.Minute)
			late := w.worst(w.probes)
			expect.That(t, late <= every+time.Second, "every %v: an order is closed %v after it was due", every, late)
			var n int
			w.change(func() { n = w.reads })
			expect.That(t, n <= int(7*time.Minute/every)+100, "every %v: %d reads", every, n)
		})
	}
}

// ownStore is a Store without a Reader.
type ownStore struct{ s *shop }

func (o ownStore) Now(ctx context.Context) (time.Time, error) { return o.s.Now(ctx) }
func (o ownStore) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	return o.s.Overdue(ctx, cutoff, after, limit)
}
func (o ownStore) CloseOrders(ctx context.Context, p orderclose.Path, r []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return o.s.CloseOrders(ctx, p, r)
}

func TestLoop_AnOwnStoreIsSearchedByPages(t *testing.T) {
	for _, c := range []int{0, 2, 5, 8} {
		t.Run(beside[c].name, func(t *testing.T) {
			play(t, 1, func(w *world) {
				w.options = func(o *Options) { o.Store, o.Reader, o.SweepLog, o.Leases = ownStore{w.shop}, nil, nil, nil }
				if c := beside[c]; c.before != nil {
					c.before(w)
				}
				w.process("a")
				w.probe(5 * time.Minute)
				time.Sleep(time.Minute)
				late := w.worst(w.probes)
				expect.That(t, late <= 30*time.Second, "a lost order is closed after %v", late)
			})
		})
	}
}

func TestLoop_TheHoursCountWhatTheLoopHasClosed(t *testing.T) {
	play(t, 1, func(w *world) {
		w.process("p0")
		w.running.Go(func() { w.probe(4 * time.Hour) })
		const lives = 16
		for i := range lives {
			time.Sleep(15 * time.Minute)
			w.kill(fmt.Sprintf("p%d", i))
			w.process(fmt.Sprintf("p%d", i+1))
		}
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		for begin, receipts := range w.receipts {
			h := w.hours[begin]
			n := h.Missed + h.AfterFailure + h.AfterPause
			expect.That(t, n <= receipts && n >= receipts-5, "hour %v: %+v and %d receipts", begin, h, receipts)
			expect.That(t, h.State == overdue.Finished && w.ends[begin] == 1, "hour %v: %q, ended %d times", begin, h.State, w.ends[begin])
		}
	})
}

func TestLoop_EachPeriodHasAPass(t *testing.T) {
	play(t, 1, func(w *world) {
		w.options = func(o *Options) { o.Period = 5 * time.Second }
		w.process("a")
		time.Sleep(10 * time.Minute)
		w.change(func() {
			finished := 0
			for _, h := range w.hours {
				if h.State == overdue.Finished {
					finished++
				}
			}
			expect.That(t, finished >= 118, "%d of 120 periods have a pass", finished)
		})
	})
}

// gaugeOf returns how long the time of a gauge is over.
func gaugeOf(g prometheus.Gauge) time.Duration {
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		panic(err)
	}
	if m.GetGauge().GetValue() <= 0 { // as the alert reads it
		return 0
	}
	return max(0, time.Since(time.UnixMilli(int64(m.GetGauge().GetValue()*1000))))
}

// noHours is a SweepLog that answers nothing, as without the right to its table.
type noHours struct{ *shop }

func (noHours) SweepHour(context.Context, string, time.Time) (overdue.Hour, error) {
	return overdue.Hour{}, errBroken
}

func TestLoop_ClosesOrdersThoughTheHoursCannotBeRead(t *testing.T) {
	play(t, 1, func(w *world) {
		w.options = func(o *Options) { o.SweepLog = noHours{w.shop} }
		w.process("a")
		w.probe(3 * time.Minute)
		time.Sleep(30 * time.Second)
		late := w.worst(w.probes)
		expect.That(t, late <= 30*time.Second, "a lost order is closed after %v", late)
	})
}

// A thousand locked orders, each of which is tried again after 5 s, do not take what a low rate allows: new orders close soon, and older ones
// too. No turn spins until the rate allows a page.
func TestLoop_ALowRateStarvesNoKind(t *testing.T) {
	play(t, 1, func(w *world) {
		w.options = func(o *Options) { o.Rate = 50 }
		old := w.add(healthy, "", "old", spread(w.r, 500, w.now().Add(-2*time.Hour), w.now().Add(-time.Hour))...)
		w.add(contended, "", "locked", spread(w.r, 1000, w.now().Add(-time.Hour), w.now().Add(-10*time.Second))...)
		w.process("a")
		w.probe(5 * time.Minute)
		time.Sleep(time.Minute)
		expect.AtMost(t, w.worst(w.probes), 30*time.Second, "the lateness of orders that came due")
		expect.That(t, !slices.ContainsFunc(old, func(o *shopOrder) bool { return o.open }), "older orders are open")
		expect.AtMost(t, w.reads, 6*60*3, "reads in six minutes")
	})
}

func TestLanes_PagesHaveTheOrdersOfOneCall(t *testing.T) {
	play(t, 1, func(w *world) {
		lanes := must.Get(New(Options{Store: w.shop, Logger: discard}))(t).newLoop().lanes
		lanes.fast.orders = 500
		for _, w.batch = range []int{10, 100} { // while shops compete for the stock it takes fewer
			expect.Equal(t, len(lanes.next(make([]orderclose.Order, 500))[0]), w.batch, "orders in a page")
		}
	})
}

func TestPass_OrdersHaveTheirTurnAfterTheClockWasSetBack(t *testing.T) {
	now := time.Now()
	expect.That(t, beginPass(pass{to: now.Add(time.Hour).UnixNano() / int64(turnTime)}, now, now, now).hasTurn("any"), "no order has its turn")
}

func TestRests_AnOrderThatIsNotFoundAndNotReadAgainIsForgotten(t *testing.T) {
	now := time.Now()
	r := rests{}
	r.tried(orderclose.Order{ID: "gone"}, orderclose.NotFound, now)
	expect.That(t, r.has("gone", now) && len(r.ended(now.Add(time.Minute))) == 0, "it does not rest")
	r.ended(now.Add(shortestRest + keepSettled + time.Second))
	expect.Equal(t, len(r), 0, "orders that rest")
}

// News have left an order to the next pass, and the pipeline has closed it meanwhile.
func TestTurn_NothingIsUntriedWhileNothingIsOverdue(t *testing.T) {
	play(t, 1, func(w *world) {
		l := must.Get(New(Options{Store: w.shop, Reader: w.shop, Logger: discard}))(t).newLoop()
		l.skipped = w.now().Add(-time.Hour)
		must.Do(t, l.run(w.ctx))
		expect.That(t, l.quiet && l.oldestUntried().Equal(l.cutoff), "quiet %v, the oldest that was not asked for is of %v", l.quiet, l.oldestUntried())
	})
}

// Another process held the lock for an hour. The first read fails.
func TestLoop_AProcessIsNotLateForTheTimeOfAnotherHolder(t *testing.T) {
	play(t, 1, func(w *world) {
		l := must.Get(New(Options{Store: w.shop, Reader: broken{w.shop, "reads fail"}, Logger: discard}))(t).newLoop()
		l.last, l.newsUpTo = time.Now(), w.now()
		time.Sleep(time.Hour)
		some(shown, 1)(w)
		l.idle()
		l.do(w.ctx)
		expect.AtMost(t, gaugeOf(l.metrics.untried), time.Minute, "the time for which an order may not have been asked for")
	})
}

func TestSweep_TriesAnOrderThatIsLockedForAMomentAgain(t *testing.T) {
	play(t, 1, func(w *world) {
		locked := w.add(contended, "", "locked", w.now().Add(-time.Hour), w.now().Add(-time.Minute))
		time.AfterFunc(time.Second, func() { w.cure(locked[0]) })
		r := must.Get(must.Get(New(Options{Store: w.shop, Reader: w.shop, Logger: discard}))(t).Sweep(w.ctx, false))(t)
		expect.That(t, r.Found == 2 && r.Closed == 1 && r.Failed == 1, "%+v", r)
	})
}
