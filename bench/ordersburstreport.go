package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// burstsReport is the output of make bench-burst.
type burstsReport struct {
	orders int
	sides  []burstSide
	turns  map[string][]orderBurst // by the side's name
}

// The JSON output of make bench-burst, for programs.
type (
	burstsJSON struct {
		Orders   int             `json:"orders"`
		Pipeline orderBurstJSON  `json:"pipeline"`
		Poller   orderBurstJSON  `json:"poller"` // the first poller
		Ratio    float64         `json:"ratio"`  // the poller's last order to the pipeline's; 0 if one is missing
		Turns    []burstTurnJSON `json:"turns"`  // each turn of each side
	}
	burstTurnJSON struct {
		Side string `json:"side"`
		orderBurstJSON
	}
	orderBurstJSON struct {
		MedianS float64 `json:"median_s"`
		LastS   float64 `json:"last_s"`
		EventsS float64 `json:"events_s"`
		CPUS    float64 `json:"cpu_s"`
		RSSMB   float64 `json:"rss_mb"`
	}
)

// medianBurst returns the medians of the turns.
func medianBurst(turns []orderBurst) orderBurstJSON {
	of := func(field func(orderBurst) float64) float64 {
		var values []float64
		for _, t := range turns {
			values = append(values, field(t))
		}
		return round(median(values), 2)
	}
	return orderBurstJSON{
		MedianS: of(func(b orderBurst) float64 { return b.median.Seconds() }),
		LastS:   of(func(b orderBurst) float64 { return b.last.Seconds() }),
		EventsS: of(func(b orderBurst) float64 { return b.events.Seconds() }),
		CPUS:    of(func(b orderBurst) float64 { return b.cpu.Seconds() }),
		RSSMB:   of(func(b orderBurst) float64 { return b.rssMB }),
	}
}

// json returns the medians of the pipeline and of the first poller, and every turn.
func (r burstsReport) json() burstsJSON {
	j := burstsJSON{Orders: r.orders}
	for _, side := range slices.Backward(r.sides) {
		if side.poll > 0 {
			j.Poller = medianBurst(r.turns[side.name])
		} else {
			j.Pipeline = medianBurst(r.turns[side.name])
		}
	}
	if j.Pipeline.LastS > 0 {
		j.Ratio = round(j.Poller.LastS/j.Pipeline.LastS, 2)
	}
	for _, side := range r.sides {
		for _, turn := range r.turns[side.name] {
			j.Turns = append(j.Turns, burstTurnJSON{side.name, medianBurst([]orderBurst{turn})})
		}
	}
	return j
}

// print writes the object to out and the table to tables.
func (r burstsReport) print(out, tables io.Writer) error {
	j := r.json()
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%d orders due at once, closed by\thalf of them s\tthe last s\tlast event s\tCPU s\tRSS MB\t\n", r.orders)
	for _, side := range r.sides {
		b := medianBurst(r.turns[side.name])
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t\n", side.name, b.MedianS, b.LastS, b.EventsS, b.CPUS, b.RSSMB)
	}
	if j.Ratio > 0 {
		fmt.Fprintf(w, "poller to pipeline\t\t%.2f x\t\t\t\t\n\n", j.Ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(j)
}
