package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
)

const (
	// pollWorkers is how many of the poller's transactions run at once.
	pollWorkers = 2
	// pollPage is how many orders the poller finds at once, and closes in a transaction.
	pollPage = 500
	// lookEvery is how often the bench looks whether all orders are closed.
	lookEvery = 20 * time.Millisecond
	// burstWarmUp is the time between the creation of the orders and their due time. The programs
	// start in this time.
	burstWarmUp = 10 * time.Second
)

// orderBurst is how one side closed the orders that were due at one instant. The times are
// counted from that instant.
type orderBurst struct {
	median time.Duration // half of the orders are closed, by the database's clock
	last   time.Duration // the last order is closed
	events time.Duration // the last event is in its topic
	cpu    time.Duration // of the side's processes, from start to end
	rssMB  float64       // of the side's largest process
}

// benchBurst closes orders that are all due at one instant: by the pipeline, and by a program that
// polls the database.
func benchBurst(ctx context.Context, p *workspace, pl plan, program string) error {
	dir, err := os.MkdirTemp("", "orderclose-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := localShop(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	sides, rounds, err := burstSides(os.Getenv, pl.rounds)
	if err != nil {
		return err
	}
	r := burstsReport{orders: pl.burst, turns: map[string][]orderBurst{}}
	fmt.Fprintf(os.Stderr, "warming up: each side closes %d orders\n", pl.burst/10)
	for round := range rounds + 1 {
		orders := pl.burst
		if round == 0 { // does not count: the servers have just started
			orders /= 10
		}
		// The servers get faster while they run, so every second round goes in the opposite order.
		turns := slices.Clone(sides)
		if round%2 == 0 {
			slices.Reverse(turns)
		}
		for _, side := range turns {
			b, err := p.orderBurst(ctx, s, dir, program, side, orders)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", side.name, round, err)
			}
			if round == 0 {
				continue
			}
			fmt.Fprintf(os.Stderr, "round %d  %-10s  last order closed after %.2f s, last event after %.2f s\n", round, side.name, b.last.Seconds(), b.events.Seconds())
			r.turns[side.name] = append(r.turns[side.name], b)
		}
	}
	r.sides = sides
	return r.print(os.Stdout, os.Stderr)
}

// orderBurst lets a side close orders: the program as a pipeline, or a poller.
func (p *workspace) orderBurst(ctx context.Context, s *shop, dir, program string, side burstSide, orders int) (b orderBurst, err error) {
	v, err := p.serve(program, dir)
	if err != nil {
		return b, err
	}
	defer func() {
		err = errors.Join(err, p.drop(context.WithoutCancel(ctx), append(v.topics(), v.cfg.Topics.Close, v.cfg.Topics.Replay, v.cfg.Topics.DeadLetter, v.cfg.Topics.Events, v.cfg.Topics.Control)...))
	}()
	due := orderclose.CeilMilli(time.Now().Add(time.Duration(orders/fillRate)*time.Second + burstWarmUp))
	l := lot{orders: orders, skus: manySKUs, published: true, due: func(int) time.Time { return due }}
	if err := s.fill(ctx, l); err != nil {
		return b, err
	}
	cmd := v.command(append([]string{"run"}, side.roles()...)...)
	cmd.Env, cmd.Stderr = append(cmd.Env, config.EnvDSN+"="+s.dsn), os.Stderr
	cmd.Args = append(cmd.Args, "--quiet")
	if err := cmd.Start(); err != nil {
		return b, err
	}
	stop := sync.OnceValue(func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	})
	defer func() { err = errors.Join(err, stop()) }()
	var poller *process
	if side.poll > 0 {
		if poller, err = p.start(job{Side: sidePoller, DSN: s.dsn, PollEvery: side.poll, PollAtMinute: side.cron}); err != nil {
			return b, err
		}
		defer func() {
			used, stopped := poller.stop()
			b.cpu += used.cpu
			b.rssMB = max(b.rssMB, float64(used.peak)/(1<<20))
			err = errors.Join(err, stopped)
		}()
	} else if err := v.fillBurst(ctx, orders, due); err != nil {
		return b, err
	}
	if left := time.Until(due); left < time.Second {
		return b, fmt.Errorf("the orders were made only %v before they are due: this machine is too busy", left)
	}
	if !sleep(ctx, time.Until(due)) {
		return b, ctx.Err()
	}
	both, waiting := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		b.last, err = s.awaitNoneDue(waiting, due)
		return err
	})
	both.Go(func() error {
		err := p.await(waiting, v.cfg.Topics.Events, orders)
		b.events = time.Since(due)
		return err
	})
	if err := both.Wait(); err != nil {
		return b, err
	}
	used, err := usedSoFar(cmd.Process.Pid)
	if err != nil {
		return b, err
	}
	b.cpu, b.rssMB = used.cpu, float64(used.peak)/(1<<20)
	var medianMS int64
	if err := s.db.QueryRowContext(ctx, "SELECT lateness_ms FROM receipts ORDER BY lateness_ms LIMIT 1 OFFSET ?", orders/2).Scan(&medianMS); err != nil {
		return b, err
	}
	b.median = time.Duration(medianMS) * time.Millisecond
	if err := stop(); err != nil { // deletes the rows of the last events
		return b, err
	}
	return b, s.sumsOK(ctx, l)
}

// fillBurst waits until the relay serves the smallest bucket, and puts the records there.
func (s *served) fillBurst(ctx context.Context, orders int, due time.Time) error {
	smallest := s.cfg.Buckets[0]
	for _, group := range []string{s.cfg.RelayGroup(smallest), s.cfg.CloserGroup()} {
		if err := s.workspace.awaitMembers(ctx, group, 1); err != nil {
			return err
		}
	}
	if !sleep(ctx, time.Until(due.Add(-smallest.Length/2))) {
		return ctx.Err()
	}
	return s.workspace.fill(ctx, smallest.Topic, load{records: orders, partitions: partitions, batch: burstBatch, size: recordSize, due: due})
}

// awaitNoneDue waits until no unpaid order is due, and returns how long after due that was.
func (s *shop) awaitNoneDue(ctx context.Context, due time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	for {
		var found bool
		err := s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM orders WHERE status = 0 AND expire_at <= ?)", due.UTC()).Scan(&found)
		if err == nil && !found {
			return time.Since(due), nil
		}
		if !sleep(ctx, lookEvery) {
			return 0, errors.Join(errors.New("orders are still open"), err, ctx.Err())
		}
	}
}
