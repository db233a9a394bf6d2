package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// The JSON output of make bench-close, for programs.
type (
	closeJSON struct {
		OneByOneRPS float64 `json:"one_by_one_rps"`
		BatchRPS    float64 `json:"batch_rps"`
		Ratio       float64 `json:"ratio"`
		HotRatio    float64 `json:"hot_ratio"` // hot SKUs to many, both in batches
		GaveUp      int     `json:"gave_up"`
		SumsOK      bool    `json:"sums_ok"` // a turn with wrong sums fails the bench
		Paid95RPS   float64 `json:"paid95_rps"`
		CheckoutP99 float64 `json:"checkout_p99_ms"` // on the hot SKUs
		// While a shop changes lines: closes a second, and the shop's lines and lost conflicts.
		LinesRPS       float64        `json:"changing_lines_rps"`
		LinesRemoved   int64          `json:"lines_removed"`
		LinesConflicts int64          `json:"lines_conflicts"`
		EndToEnd       []endToEndJSON `json:"end_to_end"`
	}
	spreadJSON struct {
		P50 float64 `json:"p50_ms"`
		P99 float64 `json:"p99_ms"`
		Max float64 `json:"max_ms"`
	}
	endToEndJSON struct {
		Rate int `json:"rate"`
		spreadJSON
		ByStage map[string]spreadJSON `json:"by_stage"`
	}
)

func (r closeReport) json() closeJSON {
	j := closeJSON{
		OneByOneRPS: round(r.oneByOne.rps, 0), BatchRPS: round(r.batch.rps, 0), Ratio: round(r.batch.rps/r.oneByOne.rps, 1),
		HotRatio: round(r.hot.rps/r.batch.rps, 2), GaveUp: r.gaveUp, SumsOK: true, Paid95RPS: round(r.paid95.rps, 0),
		CheckoutP99: ms(percentile(r.checkouts, 0.99)),
		LinesRPS:    round(r.lines.rate, 0), LinesRemoved: r.lines.removed, LinesConflicts: r.lines.conflicts,
	}
	for _, e := range r.endToEnd {
		row := endToEndJSON{Rate: e.rate, spreadJSON: e.whole.json(), ByStage: map[string]spreadJSON{}}
		for _, s := range e.stages {
			row.ByStage[s.name] = s.spread.json()
		}
		j.EndToEnd = append(j.EndToEnd, row)
	}
	return j
}

// print writes the object to out and the tables to tables.
func (r closeReport) print(out, tables io.Writer) error {
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nclosing\torders/s\tto one by one\t\n")
	for _, row := range []struct {
		name string
		t    closed
	}{
		{"one by one, 8 workers", r.oneByOne}, {"batches of 500, 2 workers", r.batch},
		{"the same, 10 hot SKUs", r.hot}, {"the same, 95 of 100 paid", r.paid95},
	} {
		fmt.Fprintf(w, "%s\t%.0f\t%.1f x\t\n", row.name, row.t.rps, row.t.rps/r.oneByOne.rps)
	}
	fmt.Fprintf(w, "\ncheckouts beside it\tp50 ms\tp99 ms\tmax ms\t\n")
	for skus, took := range map[int]durations{hotSKUs: r.checkouts, manySKUs: r.checkoutsMany} {
		s := took.spread()
		fmt.Fprintf(w, "%d SKUs\t%.1f\t%.1f\t%.1f\t\n", skus, ms(s.p50), ms(s.p99), ms(s.max))
	}
	fmt.Fprintf(w, "\na shop removes lines: %.0f closes/s, %d lines removed, %d conflicts lost by the shop\n", r.lines.rate, r.lines.removed, r.lines.conflicts)
	fmt.Fprint(w, "\nclosers\tconnections each\torders/s\t\n")
	for _, c := range r.crews {
		fmt.Fprintf(w, "%d\t%d\t%.0f\t\n", c.closers, c.pool, c.rps)
	}
	fmt.Fprint(w, "\ndue to closed, orders/s\tstage\tp50 ms\tp99 ms\tmax ms\t\n")
	for _, e := range r.endToEnd {
		for _, s := range append(e.stages, stage{"all", e.whole}) {
			fmt.Fprintf(w, "%d\t%s\t%.1f\t%.1f\t%.1f\t\n", e.rate, s.name, ms(s.p50), ms(s.p99), ms(s.max))
		}
	}
	fmt.Fprintf(w, "\norders given up: %d\n", r.gaveUp)
	if err := w.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r.json())
}
