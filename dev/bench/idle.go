package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/measure"
)

const (
	// foreignTopics is the number of topics of other applications on the cluster,
	// with 12 partitions each.
	foreignTopics = 1000
	// foreignAtOnce is how many of them one request creates or deletes.
	foreignAtOnce = 100
	// foreignLimit is the maximum that a relay may read on a cluster with foreign topics, as a multiple
	// of what it reads without them. It must not ask for the metadata of foreign topics.
	foreignLimit = 1.1
	// handovers is how often a second relay is stopped.
	handovers = 7
	// atRest is the pause before each stop. For 10 s after a rebalance, relays send more heartbeats than at rest.
	atRest = 12 * time.Second
)

// benchIdle measures a relay with empty topics, first without and then with foreign
// topics.
func benchIdle(ctx context.Context, p *workspace, pl plan, program string) error {
	dir, err := os.MkdirTemp("", "orderclose-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := p.serve(program, dir)
	if err != nil {
		return err
	}
	var r idleReport
	if r.usage, err = s.watchIdle(ctx, pl.watch); err != nil {
		return fmt.Errorf("without foreign topics: %w", err)
	}
	if r.Handover, err = s.handover(ctx); err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	if err := p.createForeign(ctx); err != nil {
		return err
	}
	if !sleep(ctx, pl.settle) { // the broker is busy with the new topics for a while
		return ctx.Err()
	}
	if r.Foreign, err = s.watchIdle(ctx, pl.watch); err != nil {
		return fmt.Errorf("with foreign topics: %w", err)
	}
	if err := measure.Print(os.Stdout, os.Stderr, r); err != nil {
		return err
	}
	if ratio := r.Foreign.Read / r.Read; ratio > foreignLimit {
		return fmt.Errorf("with %d foreign topics the relay reads %.2f times the bytes, more than %v", foreignTopics, ratio, foreignLimit)
	}
	return nil
}

// idleReport is the result of make bench-idle.
type idleReport struct {
	usage
	Foreign  usage          `json:"foreign"`     // on a cluster with foreign topics
	Handover measure.Number `json:"handover_ms"` // median
}

// watchIdle runs a relay and watches it once it serves all partitions.
func (s *served) watchIdle(ctx context.Context, during time.Duration) (u usage, err error) {
	relay, err := s.runRelay(ctx, 1)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, relay.stop()) }()
	fmt.Fprintf(os.Stderr, "warming up for %v, then watching for %v\n", warmUp, during)
	if !sleep(ctx, warmUp) {
		return u, ctx.Err()
	}
	return s.watch(ctx, relay.PID(), during)
}

// handover stops one of two relays, several times, and returns the median time in ms until the other one
// serves all partitions.
func (s *served) handover(ctx context.Context) (_ measure.Number, err error) {
	stays, err := s.runRelay(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stays.stop()) }()
	var took []time.Duration
	for i := range handovers {
		leaves, err := s.runRelay(ctx, 2)
		if err != nil {
			return 0, err
		}
		settled := sleep(ctx, atRest+time.Duration(i)*237*time.Millisecond) // at another moment between two heartbeats
		began := time.Now()
		err = errors.Join(leaves.Signal(syscall.SIGTERM), s.awaitRelays(ctx, 1))
		took = append(took, time.Since(began))
		if err := errors.Join(err, leaves.stop()); err != nil || !settled {
			return 0, errors.Join(err, ctx.Err())
		}
	}
	fmt.Fprintf(os.Stderr, "handovers took %v\n", took)
	return measure.Number(measure.MedianOf(took, time.Duration.Seconds) * 1000), nil
}

// createForeign creates the foreign topics.
func (p *workspace) createForeign(ctx context.Context) error {
	prefix := p.name("some_other_teams")
	began := time.Now()
	for from := 0; from < foreignTopics; from += foreignAtOnce {
		var names []string
		for i := range foreignAtOnce {
			names = append(names, fmt.Sprintf("%s_topic_%04d", prefix, from+i))
			p.topics[names[i]] = partitions
		}
		created, err := p.admin.CreateTopics(context.WithoutCancel(ctx), partitions, 1, nil, names...)
		if err = errors.Join(err, created.Error()); err != nil {
			return fmt.Errorf("create foreign topics: %w", err)
		}
	}
	fmt.Fprintf(os.Stderr, "%d foreign topics were made in %v\n", foreignTopics, time.Since(began).Round(time.Second))
	return ctx.Err()
}
