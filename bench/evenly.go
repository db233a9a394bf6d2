package main

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// evenly makes calls at an even rate, until all are made, one fails, or ctx ends. A call returns from
// when on its time counts: with its planned start, the wait for a worker counts too.
func evenly(ctx context.Context, rate, calls, workers int, call func(worker, number int, planned time.Time) (time.Time, error)) ([]time.Duration, error) {
	type planned struct {
		number int
		at     time.Time
	}
	queue := make(chan planned, 100_000)
	took := make([][]time.Duration, workers)
	group, running := errgroup.WithContext(ctx)
	for worker := range workers {
		group.Go(func() error {
			for p := range queue {
				from, err := call(worker, p.number, p.at)
				if err != nil {
					return err
				}
				took[worker] = append(took[worker], time.Since(from))
			}
			return nil
		})
	}
	begin := time.Now()
	for n := range calls {
		at := begin.Add(time.Duration(n) * time.Second / time.Duration(rate))
		if !sleep(running, time.Until(at)) {
			break
		}
		queue <- planned{n, at}
	}
	close(queue)
	err := group.Wait()
	return slices.Concat(took...), err
}
