package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/measure"
)

// closeReport is the result of make bench-close. Rates are medians, in orders a second.
type closeReport struct {
	OneByOneRPS measure.Number `json:"one_by_one_rps"`
	BatchRPS    measure.Number `json:"batch_rps"`
	Ratio       measure.Number `json:"ratio"`
	HotRatio    measure.Number `json:"hot_ratio"` // hot SKUs to many, both in batches
	GaveUp      int            `json:"gave_up"`
	SumsOK      bool           `json:"sums_ok"` // a turn with wrong sums fails the bench
	Paid95RPS   measure.Number `json:"paid95_rps"`
	CheckoutP99 measure.Millis `json:"checkout_p99_ms"` // on the hot SKUs
	Checkouts   []checkoutRow  `json:"checkouts"`       // beside the closer
	Payments    []paymentsRow  `json:"payments"`        // beside closing
	EndToEnd    []endToEnd     `json:"end_to_end"`
	Crews       []crewRow      `json:"crews"`
	rates       [4][]float64   // of each round
}

// checkoutRow is how long checkouts took.
type checkoutRow struct {
	SKUs int `json:"skus"`
	measure.Spread
}

// crewRow is the speed of several closers.
type crewRow struct {
	Closers int            `json:"closers"`
	Pool    int            `json:"connections_each"`
	RPS     measure.Number `json:"rps"`
}

// benchClose runs all measurements of make bench-close. With PROFILE=1 it shows what a close costs the database instead.
func benchClose(ctx context.Context, p *workspace, pl plan) error {
	if os.Getenv("PROFILE") != "" {
		return profileClose(ctx, pl)
	}
	type part = step[closeReport]
	steps := []part{func(r *closeReport, s *shop) error {
		// A first turn that does not count: a server that has just started has empty
		// buffers, which would count against the first side.
		r.SumsOK = true
		_, err := s.turn(ctx, "warming up", inBatch, overdue(pl.closeOrders/4, manySKUs, 0))
		return err
	}}
	for round := range pl.rounds {
		for i, side := range []struct {
			name               string
			crew               crew
			orders, skus, paid int
		}{
			{"one by one, 8 workers", oneByOne, pl.closeSlow, manySKUs, 0},
			{"batches of 500, 2 workers", inBatch, pl.closeOrders, manySKUs, 0},
			{"the same, 10 hot SKUs", inBatch, pl.closeOrders, hotSKUs, 0},
			{"the same, 95 of 100 paid", inBatch, pl.closeOrders, manySKUs, 95},
		} {
			steps = append(steps, func(r *closeReport, s *shop) error {
				t, err := s.turn(ctx, fmt.Sprintf("round %d  %s", round+1, side.name), side.crew, overdue(side.orders, side.skus, side.paid))
				r.rates[i] = append(r.rates[i], t.rps)
				r.GaveUp += t.gaveUp
				return err
			})
		}
	}
	steps = append(steps,
		func(r *closeReport, s *shop) error { return r.measurePayments(ctx, s, pl) },
		func(r *closeReport, s *shop) error { return r.measureCheckouts(ctx, s, pl) })
	for _, closers := range pl.closers {
		for _, pool := range pl.pools {
			steps = append(steps, func(r *closeReport, s *shop) error { return r.measureCrew(ctx, s, pl, closers, pool) })
		}
	}
	for _, rate := range pl.closeRates {
		steps = append(steps, func(r *closeReport, s *shop) error {
			e, err := measureEndToEnd(ctx, p, s, rate, pl.spell)
			if err != nil {
				return fmt.Errorf("end to end at %d/s: %w", rate, err)
			}
			r.EndToEnd = append(r.EndToEnd, e)
			return nil
		})
	}
	return compare(ctx, (*closeReport).medians, steps...)
}

// medians sets the rates of the rounds, and returns them.
func (r *closeReport) medians() map[string]measure.Number {
	of := func(side int) measure.Number { return measure.Number(measure.Median(r.rates[side])) }
	r.OneByOneRPS, r.BatchRPS, r.Paid95RPS = of(0), of(1), of(3)
	r.Ratio, r.HotRatio = r.BatchRPS/r.OneByOneRPS, of(2)/r.BatchRPS
	return map[string]measure.Number{"one by one": of(0), "batches": of(1), "batches, hot SKUs": of(2), "batches, 95 of 100 paid": of(3)}
}

// measureCheckouts measures checkouts beside the closer, on hot SKUs and on many
// SKUs.
func (r *closeReport) measureCheckouts(ctx context.Context, s *shop, pl plan) (err error) {
	for _, skus := range []int{hotSKUs, manySKUs} {
		took, t, err := s.besides(ctx, inBatch, overdue(pl.closeOrders, skus, 0))
		if err != nil {
			return fmt.Errorf("checkouts beside the closer: %w", err)
		}
		row := checkoutRow{skus, measure.SpreadOf(took)}
		fmt.Fprintf(os.Stderr, "%s: %d checkouts on %d SKUs beside %.0f closes/s: p99 %v\n",
			s.on.name, len(took), skus, t.rps, time.Duration(row.P99).Round(100*time.Microsecond))
		if skus == hotSKUs {
			r.CheckoutP99 = row.P99
		}
		r.Checkouts = append(r.Checkouts, row)
		r.GaveUp += t.gaveUp
	}
	return nil
}

// measureCrew fills a row of the table of closers and pools.
func (r *closeReport) measureCrew(ctx context.Context, s *shop, pl plan, closers, pool int) error {
	c := crew{closers: closers, pool: pool, batch: inBatch.batch}
	t, err := s.turn(ctx, fmt.Sprintf("%d closers, %d connections each", closers, pool), c, overdue(pl.closeOrders, manySKUs, 0))
	r.Crews = append(r.Crews, crewRow{closers, pool, measure.Number(t.rps)})
	r.GaveUp += t.gaveUp
	return err
}
