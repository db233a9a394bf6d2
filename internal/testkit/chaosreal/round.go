//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// settleTime is how long after the last due time, or the end of the last fault, everything may take to be done. On idle cores that takes seconds: a
// sweep comes every 5 s and closes what is overdue by 5 s. On a machine that does other work the backlog of the last faults takes longer.
const settleTime = 5 * time.Minute

// settleTimeForgotten replaces settleTime if the database may have forgotten orders. The closer tries
// an order that has no row four times. That takes seven minutes and some jitter.
const settleTimeForgotten = 10 * time.Minute

// leastActs is how many failures of the shop without a success show that it cannot work at all.
const leastActs = 20

// round is what came of one round.
type round struct {
	began   time.Time
	over    time.Duration
	played  []played
	verdict *checker.Verdict
	acts    map[string]int
	failed  map[string]int
	settled time.Duration // how long after the last due time, or the last fault, everything was done
	exits   int
	looks   int // of the witness
}

// playRound plays faults while orders are created, waits until nothing is left to do, and judges.
func playRound(ctx context.Context, w *world, seed uint64, over time.Duration, schedule []event, all []kind) (*round, error) {
	w.began = time.Now()
	watching, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { w.witness.Watch(watching) })
	var load sync.WaitGroup
	played := make(chan struct{})
	load.Go(func() { w.shop.run(ctx, seed, w.prefix, played) })
	w.playAll(schedule, all)
	w.wait(max(time.Until(w.began.Add(over)), coolDown))
	over = time.Since(w.began)
	close(played)
	load.Wait()
	if err := ctx.Err(); err != nil {
		stop()
		work.Wait()
		return nil, err
	}
	settled := w.settle(all)
	if err := w.eventsAgain(all); err != nil {
		w.violation("write the lost events again: %v", err)
	}
	stop()
	work.Wait()
	w.stopParts()
	w.findPanics()
	r := &round{began: w.began, over: over, settled: settled, played: w.played}
	r.acts, r.failed = w.shop.Acts()
	for what, n := range r.failed {
		if n >= leastActs && r.acts[what] == 0 {
			w.violation("the shop cannot work: %d attempts failed, and not one order was %s", n, what)
		}
	}
	for _, all := range w.parts {
		for _, p := range all {
			r.exits += p.Exits()
		}
	}
	var err error
	err = w.eventually(func() error { r.verdict, err = w.judge(all); return err })
	if err != nil {
		return nil, fmt.Errorf("the judge cannot read: %w", err)
	}
	r.looks = w.witness.AddTo(r.verdict)
	if w.cluster.power {
		w.harm = slices.Concat(w.harm, r.lateAfterPower(), w.judgeBursts(r.verdict.Arrivals))
	}
	r.verdict.Violations = append(r.verdict.Violations, w.harm...)
	return r, nil
}

// settle waits until nothing is left to do, and notes what still is when its time is over. It
// returns how long that took after the last due time, or the last fault.
func (w *world) settle(all []kind) time.Duration {
	limit := settleTime
	if w.forgot(all) {
		limit = settleTimeForgotten
	}
	from := time.Now()
	if last := w.shop.LastDue(); last.After(from) {
		from = last
	}
	var left []string
	for deadline := from.Add(limit); ; time.Sleep(500 * time.Millisecond) {
		if left = w.left(); len(left) == 0 {
			note("%4.0f s  all done %.1f s after the last due time and the last fault", time.Since(w.began).Seconds(), time.Since(from).Seconds())
			return time.Since(from)
		}
		if time.Now().After(deadline) || w.ctx.Err() != nil {
			w.violation("still to do %v after the last due time and the last fault: %s", limit, strings.Join(left, "; "))
			return limit
		}
	}
}

// left says what is still to do.
func (w *world) left() (left []string) {
	number := func(what, query string) {
		var n int
		if err := w.shop.db.QueryRowContext(w.ctx, query).Scan(&n); err != nil {
			left = append(left, fmt.Sprintf("%s: %v", what, err))
		} else if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	number("unpaid orders", "SELECT COUNT(*) FROM orders WHERE status = 0")
	number("events in the outbox", "SELECT COUNT(*) FROM outbox_events")
	number("schedules in the outbox", "SELECT COUNT(*) FROM outbox_schedules")
	for topic, group := range scenario.Groups(w.cfg) {
		lag, err := scenario.WaitingIn(w.ctx, w.kafka, group, topic)
		if err != nil || lag != 0 {
			left = append(left, fmt.Sprintf("%d records of %s (%v)", lag, topic, err))
		}
	}
	return left
}

// stopParts stops all processes in order, at once.
func (w *world) stopParts() {
	var ends sync.WaitGroup
	for _, all := range w.parts {
		for _, p := range all {
			ends.Go(func() {
				began := time.Now()
				_ = p.End(syscall.SIGTERM, 0)
				if took := time.Since(began); took > stopLimit {
					w.violation("%s took %v to stop, and nothing was wrong", p.Name, took)
				}
			})
		}
	}
	ends.Wait()
}

// findPanics looks for crashes in the logs of the processes.
func (w *world) findPanics() {
	for _, all := range w.parts {
		for _, p := range all {
			text, err := os.ReadFile(w.logFile(p.Name))
			if err != nil {
				w.violation("log of %s: %v", p.Name, err)
			}
			if found := crash.Find(text); found != nil {
				w.violation("%s crashed: %s", p.Name, found)
			}
		}
	}
}

// crash is a line that Go's runtime prints when a program crashes.
var crash = regexp.MustCompile(`(?m)^(panic|fatal error|SIG[A-Z]+): .*$`)

// did reports whether a fault of such a kind was played.
func (w *world) did(all []kind, such func(kind) bool) bool {
	return slices.ContainsFunc(w.played, func(p played) bool {
		return slices.ContainsFunc(all, func(k kind) bool { return k.name == p.Kind && such(k) })
	})
}

// forgot reports whether the database may have lost commits that it had shown.
func (w *world) forgot(all []kind) bool {
	return w.cluster.kind.forgets && w.did(all, func(k kind) bool { return k.forgets })
}

// judge asks the checker.
func (w *world) judge(all []kind) (*checker.Verdict, error) {
	deadLetters := poisonCauses
	if w.forgot(all) {
		deadLetters = slices.Concat(deadLetters, []string{"not_found"})
	}
	if w.did(all, func(k kind) bool { return k.flips }) {
		deadLetters = slices.Concat(deadLetters, []string{"corrupt"})
	}
	e := scenario.ExpectOf(w.cfg, w.shop.Shop)
	e.Created, e.DeadLetters, e.OutboxEmpty = w.shop.Created(), deadLetters, true
	e.RecordsDeleted = w.did(all, func(k kind) bool { return k.loses })
	e.ClockSkew = w.did(all, func(k kind) bool { return k.needs == needsClock })
	return checker.Check(w.ctx, checker.Servers{DB: w.shop.db, Brokers: w.cluster.direct}, e)
}
