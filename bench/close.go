package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// closeReport is the output of make bench-close.
type closeReport struct {
	oneByOne, batch, hot closed // medians
	gaveUp               int
	paid95               closed
	checkouts            []time.Duration // hot SKUs, sorted
	checkoutsMany        []time.Duration // 10,000 SKUs, sorted
	lines                lineChanges
	endToEnd             []endToEnd
	crews                []crewRow
}

// crewRow is a line of the table of closers and pools.
type crewRow struct {
	crew
	closed
}

// benchClose runs all measurements of make bench-close.
func benchClose(ctx context.Context, p *workspace, pl plan) error {
	s, err := localShop(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	var r closeReport
	if err := r.measureBatches(ctx, s, pl); err != nil {
		return err
	}
	if err := r.measureCheckouts(ctx, s, pl); err != nil {
		return err
	}
	if err := r.measureLineChanges(ctx, s, pl); err != nil {
		return err
	}
	if err := r.measureCrews(ctx, s, pl); err != nil {
		return err
	}
	for _, rate := range pl.closeRates {
		e, err := measureEndToEnd(ctx, p, s, rate, pl.spell)
		if err != nil {
			return fmt.Errorf("end to end at %d/s: %w", rate, err)
		}
		r.endToEnd = append(r.endToEnd, e)
	}
	return r.print(os.Stdout, os.Stderr)
}

// measureBatches runs the sides in alternating turns, for several rounds.
func (r *closeReport) measureBatches(ctx context.Context, s *shop, pl plan) error {
	// A first turn that does not count: a server that has just started has empty
	// buffers, which would count against the first side.
	if _, err := s.turn(ctx, "warming up", inBatch, overdue(pl.closeOrders/4, manySKUs, 0)); err != nil {
		return err
	}
	var rates [4][]float64
	for round := range pl.rounds {
		for i, side := range []struct {
			name  string
			crew  crew
			lot   lot
			rates *[]float64
		}{
			{"one by one, 8 workers", oneByOne, overdue(pl.closeSlow, manySKUs, 0), &rates[0]},
			{"batches of 500, 2 workers", inBatch, overdue(pl.closeOrders, manySKUs, 0), &rates[1]},
			{"the same, 10 hot SKUs", inBatch, overdue(pl.closeOrders, hotSKUs, 0), &rates[2]},
			{"the same, 95 of 100 paid", inBatch, overdue(pl.closeOrders, manySKUs, 95), &rates[3]},
		} {
			t, err := s.turn(ctx, fmt.Sprintf("round %d  %s", round+1, side.name), side.crew, side.lot)
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], t.rps)
			r.gaveUp += t.gaveUp
		}
	}
	for i, side := range []*closed{&r.oneByOne, &r.batch, &r.hot, &r.paid95} {
		side.rps = median(rates[i])
	}
	return nil
}

// measureCheckouts measures checkouts beside the closer, on hot SKUs and on many
// SKUs.
func (r *closeReport) measureCheckouts(ctx context.Context, s *shop, pl plan) (err error) {
	for _, side := range []struct {
		skus int
		took *[]time.Duration
	}{{hotSKUs, &r.checkouts}, {manySKUs, &r.checkoutsMany}} {
		took, t, err := s.besides(ctx, inBatch, overdue(pl.closeOrders, side.skus, 0))
		if err != nil {
			return fmt.Errorf("checkouts beside the closer: %w", err)
		}
		fmt.Fprintf(os.Stderr, "%d checkouts on %d SKUs beside %.0f closes/s: p99 %.1f ms\n", len(took), side.skus, t.rps, ms(percentile(took, 0.99)))
		*side.took = took
		r.gaveUp += t.gaveUp
	}
	return nil
}

// measureCrews fills the table of closers and pools.
func (r *closeReport) measureCrews(ctx context.Context, s *shop, pl plan) error {
	for _, closers := range pl.closers {
		for _, pool := range pl.pools {
			c := crew{closers: closers, pool: pool, batch: inBatch.batch}
			t, err := s.turn(ctx, fmt.Sprintf("%d closers, %d connections each", closers, pool), c, overdue(pl.closeOrders, manySKUs, 0))
			if err != nil {
				return err
			}
			r.crews = append(r.crews, crewRow{c, t})
			r.gaveUp += t.gaveUp
		}
	}
	return nil
}
