package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

// order is the order of the sides' turns. They alternate, so that a noisy minute of
// the machine affects all sides.
var order = []string{sideRelay, sideCopy, sideFranz}

func measureThroughput(ctx context.Context, p *workspace, pl plan) ([]drained, error) {
	var all []drained
	for _, batch := range pl.batches {
		d, err := drainAll(ctx, p, pl, batch)
		if err != nil {
			return nil, fmt.Errorf("batches of %d: %w", batch, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// drainAll lets every side drain sources with batches of one size, for several
// rounds.
func drainAll(ctx context.Context, p *workspace, pl plan, batch int) (drained, error) {
	source, err := p.topic(ctx, "delay", partitions)
	if err == nil {
		err = p.fill(ctx, source, load{records: pl.records, batch: batch, due: time.Now().Add(-time.Minute)})
	}
	if err != nil {
		return drained{}, err
	}
	defer p.drop(context.WithoutCancel(ctx), source)
	if batch == pl.batches[0] {
		// Turns that do not count: a broker that has just started runs code that is not compiled
		// yet, which would count against the first sides, and make a short run slower than a long
		// one.
		fmt.Fprintf(os.Stderr, "warming up the broker for %v\n", pl.warmUp)
		for began, n := time.Now(), 0; time.Since(began) < pl.warmUp; n++ {
			if _, err := drain(ctx, p, []string{sideCopy, sideRelay}[n%2], source, pl.records); err != nil {
				return drained{}, fmt.Errorf("warming up: %w", err)
			}
		}
	}
	turns := map[string][]turn{}
	for round := range pl.rounds {
		for _, side := range order {
			t, err := drain(ctx, p, side, source, pl.records)
			if err != nil {
				return drained{}, fmt.Errorf("%s, round %d: %w", side, round+1, err)
			}
			fmt.Fprintf(os.Stderr, "batches of %-4d round %d  %-13s %9.0f records/s\n", batch, round+1, side, t.RPS)
			turns[side] = append(turns[side], t)
		}
	}
	d := drained{Batch: batch, Sides: map[string]turn{}}
	for side, all := range turns {
		d.Sides[side] = turn{
			measure.MedianOf(all, func(t turn) measure.Number { return t.RPS }),
			measure.MedianOf(all, func(t turn) measure.Number { return t.CPUPerMillion }),
			measure.MedianOf(all, func(t turn) measure.Number { return t.RSSMB }),
		}
	}
	return d, nil
}

// drain lets one side move all records of the source into a new topic, and checks
// that all have arrived. For the relay it checks that each arrived once, since
// nothing interrupts it here.
func drain(ctx context.Context, p *workspace, side, source string, records int) (turn, error) {
	j, err := p.jobFor(ctx, side, source)
	if err != nil {
		return turn{}, err
	}
	defer p.drop(context.WithoutCancel(ctx), j.Target, j.DeadLetter)
	s, err := p.start(j)
	if err != nil {
		return turn{}, err
	}
	steady, cpu, arrived := p.awaitSteadily(ctx, j.Target, records, s)
	used, err := s.stop()
	if err != nil {
		return turn{}, err
	}
	if arrived != nil {
		return turn{}, arrived
	}
	t, err := p.tally(ctx, j.Target, records)
	if err == nil {
		err = t.check(side == sideRelay)
	}
	if err != nil {
		return turn{}, err
	}
	return turn{measure.Number(t.rate()), measure.Number(cpu.Seconds() * 1e6 / float64(steady)), megabytes(used.Peak)}, nil
}

// startShare is the part of the records, one of this many, that must arrive before CPU time counts.
// The start of a process costs the same for few records as for many, so it is left out.
const startShare = 10

// awaitSteadily waits until all records have arrived. It returns the CPU time that the process used
// after its start, and for how many records.
func (p *workspace) awaitSteadily(ctx context.Context, topic string, records int, s *side) (steady int, cpu time.Duration, err error) {
	if err := p.await(ctx, topic, records/startShare, s.Process); err != nil {
		return 0, 0, err
	}
	arrived, err := p.length(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	begin, err := process.UsedBy(s.PID())
	if err == nil {
		err = p.await(ctx, topic, records, s.Process)
	}
	if err != nil {
		return 0, 0, err
	}
	end, err := process.UsedBy(s.PID())
	return max(records-arrived, 1), end.CPU - begin.CPU, err
}

// jobFor creates the other resources of a side: new topics and a new group.
func (p *workspace) jobFor(ctx context.Context, side, source string) (job, error) {
	target, err := p.topic(ctx, "close", partitions)
	if err != nil {
		return job{}, err
	}
	dead, err := p.topic(ctx, "dead", 1)
	if err != nil {
		return job{}, err
	}
	return job{Side: side, Source: source, Target: target, Group: p.group(), DeadLetter: dead}, nil
}
