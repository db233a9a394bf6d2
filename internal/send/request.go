package send

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

// request is what a lane has in flight. Appender.mu protects wanted.
type request struct {
	parts  []part
	wanted int // parts of calls that have not ended; 0: the request is to end soon
	cancel context.CancelFunc
}

// start begins a request of a lane with what waits in a queue. The caller holds mu.
func (a *Appender) start(t *topic, l *lane, from *queue) {
	most := math.MaxInt
	if !l.failing.IsZero() {
		most = probeRecords
	}
	r := &request{parts: from.take(most)}
	for _, p := range r.parts {
		p.flying = append(p.flying, r)
	}
	r.wanted = len(r.parts)
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	l.busy, l.began, l.twice, t.last = true, time.Now(), false, l.number
	a.running.Go(func() {
		defer r.cancel()
		left, err := a.flush(ctx, t, l, r.parts)
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, p := range r.parts {
			p.flying = slices.DeleteFunc(p.flying, func(other *request) bool { return other == r })
		}
		l.busy = false
		if err == nil || r.wanted > 0 {
			a.note(t, l, err)
		}
		a.retry(t, left, err)
		a.next(t)
	})
}

// flush sends parts by one request. If Kafka refuses the request for good, flush sends each half by a request of its own. After any other
// error it stops: left has the parts that were neither acked nor refused.
func (a *Appender) flush(ctx context.Context, t *topic, l *lane, parts []part) (left []part, err error) {
	began := time.Now()
	at, err := l.produce(ctx, t.name, l.number, recordsOf(parts))
	if err != nil && !errors.Is(err, wire.ErrRefused) {
		return parts, err
	}
	a.mu.Lock()
	halves := [][]part{parts[:len(parts)/2], parts[len(parts)/2:]}
	switch first := parts[0]; {
	case err == nil:
		answered := time.Now()
		t.usual = usual(t.usual, answered.Sub(began))
		for _, p := range parts {
			if p.result.Acked = append(p.result.Acked, Acked{p.records, l.number, began, at, answered}); l.twice {
				p.result.Repeated += len(p.records)
			}
			a.settle(t, p.entry)
		}
		halves = nil
	case len(parts) == 1 && len(first.records) == 1: //mutant:refuse-all-records,rejected-refuses-all
		first.result.Refused = append(first.result.Refused, Refusal{first.records[0], err}) //mutant:refuse-all-records,rejected-refuses-all
		a.settle(t, first.entry)                                                            //mutant:refuse-all-records,rejected-refuses-all
		halves = nil
	case len(parts) == 1:
		n := len(first.records) / 2
		first.open++
		halves = [][]part{{{first.entry, first.records[:n:n]}}, {{first.entry, first.records[n:]}}}
	}
	a.mu.Unlock()
	for i, half := range halves {
		if left, err := a.flush(ctx, t, l, half); err != nil {
			return append(slices.Clone(left), slices.Concat(halves[i+1:]...)...), err
		}
	}
	return nil, nil
}

func recordsOf(parts []part) []wire.RawRecord {
	if len(parts) == 1 {
		return parts[0].records
	}
	var all []wire.RawRecord
	for _, p := range parts {
		all = append(all, p.records...)
	}
	return all
}

// note keeps how the last request of a lane ended, and lets it rest after a failure. The caller holds mu.
func (a *Appender) note(t *topic, l *lane, err error) {
	logger := a.o.Logger.With("to", t.name, "to_partition", l.number)
	if l.err = err; err == nil {
		if !l.failing.IsZero() {
			logger.Info("topic accepts records again", "failed_since", l.failing)
		}
		t.since, l.failing, l.rest = time.Time{}, time.Time{}, rest{}
		return
	}
	if l.failing.IsZero() {
		l.failing = l.began
	}
	if t.since.IsZero() {
		t.since = l.began
	}
	l.rest.begin(maxRest)
	if time.Since(t.logged) >= logEvery {
		t.logged = time.Now()
		logger.Warn("append failed, will retry", "failing_since", l.failing, "err", err)
	}
	fixed := l.fixed.parts
	l.fixed = queue{}
	for _, p := range fixed {
		p.leave(p.records, err)
		a.settle(t, p.entry)
	}
}

// retry queues the parts again that a request has left. A part goes back to its caller if the call has ended, or if its records have a fixed
// place. The caller holds mu.
func (a *Appender) retry(t *topic, left []part, err error) {
	var again []part
	for _, p := range left {
		if errors.Is(err, wire.ErrUnanswered) && !errors.Is(p.ctx.Err(), context.Canceled) {
			p.result.Repeated += len(p.records)
		}
		if p.ctx.Err() != nil || p.place != nil {
			p.leave(p.records, err)
			a.settle(t, p.entry)
			continue
		}
		p.result.Err = err
		again = append(again, p)
	}
	t.any.putBack(again...)
}
