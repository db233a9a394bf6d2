package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// loads are the multiples of the smallest load in each curve.
var loads = []int{1, 4, 16}

// growWithLoad prints what relay, closer, sweep and outbox do at 1, 4 and 16 times a load.
func growWithLoad(ctx context.Context, p *workspace, pl plan) error {
	s, err := localShop(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if _, err := s.turn(ctx, "warming up", inBatch, overdue(pl.growthClosed/2, manySKUs, 0)); err != nil {
		return err
	}
	curves := []struct {
		head string
		row  func(times int) (string, error)
	}{
		{"| records that are due | relay: records/s | CPU-s a million | RSS MB |\n| ---: | ---: | ---: | ---: |", func(times int) (string, error) {
			n := times * pl.growth / 2
			source, err := p.topic(ctx, "delay", partitions)
			if err != nil {
				return "", err
			}
			defer p.drop(context.WithoutCancel(ctx), source)
			err = p.fill(ctx, source, load{records: n, partitions: partitions, batch: growthBatch, size: recordSize, due: time.Now().Add(-time.Minute)})
			if err != nil {
				return "", err
			}
			t, err := drain(ctx, p, sideRelay, source, n)
			return fmt.Sprintf("| %d | %.0f | %.2f | %.0f |", n, t.rps, t.cpuPerMil, t.rssMB), err
		}},
		{"| partitions | relay: records/s | CPU-s a million | RSS MB |\n| ---: | ---: | ---: | ---: |", func(times int) (string, error) {
			r := growthRows()[0]
			r.partitions *= times
			t, _, err := r.drain(ctx, p, pl.growth)
			return fmt.Sprintf("| %d | %.0f | %.2f | %.0f |", r.partitions, t.rps, t.cpuPerMil, t.rssMB), err
		}},
		{"| orders closed before | closer: orders/s |\n| ---: | ---: |", s.closeMore(ctx, pl.growthClosed)},
		{"| rows of orders | overdue | sweep: s to find them | found and closed/s |\n| ---: | ---: | ---: | ---: |", func(times int) (string, error) {
			n := times * pl.growthTable
			if err := s.growTo(ctx, n); err != nil {
				return "", err
			}
			f, err := s.find(ctx, byKeyset)
			if err != nil {
				return "", err
			}
			rps, err := s.sweep(ctx, f.orders)
			return fmt.Sprintf("| %d | %d | %.3f | %.0f |", n, f.orders, f.took.Seconds(), rps), err
		}},
		{"| rows that wait in the outbox | rows/s of two dispatchers |\n| ---: | ---: |", func(times int) (string, error) {
			d, err := measureDispatch(ctx, p, s, times*pl.growthOutbox)
			return fmt.Sprintf("| %d | %.0f |", d.rows, d.rps), err
		}},
	}
	for _, c := range curves {
		fmt.Printf("\n%s\n", c.head)
		for _, times := range loads {
			row, err := c.row(times)
			if err != nil {
				return fmt.Errorf("%s: %w", c.head, err)
			}
			fmt.Println(row)
		}
	}
	return nil
}

// closeMore returns a function that measures how fast the closer closes that many orders after a
// multiple of them was closed. Receipts, ledger and events of these orders stay in their tables.
func (s *shop) closeMore(ctx context.Context, orders int) func(times int) (string, error) {
	closed := 0
	return func(times int) (string, error) {
		if closed == 0 {
			if err := s.fill(ctx, overdue((loads[len(loads)-1]+1)*orders, manySKUs, 0)); err != nil {
				return "", err
			}
		}
		if _, err := s.closeLot(ctx, inBatch, closed, times*orders); err != nil {
			return "", err
		}
		t, err := s.closeLot(ctx, inBatch, times*orders, (times+1)*orders)
		closed = (times + 1) * orders
		fmt.Fprintf(os.Stderr, "%d orders closed\n", closed)
		return fmt.Sprintf("| %d | %.0f |", times*orders, t.rps), err
	}
}
