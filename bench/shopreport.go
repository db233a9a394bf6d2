package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/producer"
)

// shopReport is what make bench-shop has measured.
type shopReport struct {
	rate    int
	turns   map[string][]shopReads // of each side
	unknown map[string]unknownCost
	notices noticeTimes
}

// unknownCost is the cost of reading ids that no order has.
type unknownCost struct {
	selects int64
	took    durations
}

// benchShop measures the reads and the notices of examples/checkout.
func benchShop(ctx context.Context, p *workspace, pl plan) (err error) {
	s, err := localShop(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	client, err := openRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	cfg, err := p.shopConfig()
	if err != nil {
		return err
	}
	made, err := producer.New(producer.Options{Brokers: p.brokers, Buckets: cfg.Buckets, CloseTopic: cfg.Topics.Close, Delays: cfg.Delays, MaxDelay: cfg.MaxDelay})
	if err != nil {
		return err
	}
	defer made.Close()
	if err := checkout.CreateTables(ctx, s.db, producer.MySQL); err != nil {
		return err
	}
	due := time.Now().Add(time.Hour)
	if err := s.fill(ctx, lot{orders: pl.shopOrders, skus: manySKUs, due: func(int) time.Time { return due }}); err != nil {
		return err
	}
	b := &shopBench{shop: s, redis: client, producer: made, prefix: p.prefix, orders: pl.shopOrders}
	defer func() { err = errors.Join(err, b.dropKeys(context.WithoutCancel(ctx))) }()

	report := shopReport{rate: pl.shopRate, turns: map[string][]shopReads{}, unknown: map[string]unknownCost{}}
	for round := range pl.rounds {
		for _, side := range shopSides {
			fmt.Fprintf(os.Stderr, "reads, %s, round %d: %d a second for %v\n", side.name, round+1, pl.shopRate, pl.shopSpell)
			turn, err := b.measure(ctx, side, round, pl.shopRate, pl.shopSpell)
			if err != nil {
				return err
			}
			report.turns[side.name] = append(report.turns[side.name], turn)
		}
	}
	for _, side := range shopSides[1:] {
		fmt.Fprintf(os.Stderr, "%d unknown ids, %s\n", unknownReads, side.name)
		selects, took, err := b.unknown(ctx, side)
		if err != nil {
			return err
		}
		report.unknown[side.name] = unknownCost{selects, took}
	}
	fmt.Fprintf(os.Stderr, "notices of %d orders\n", pl.shopNotices)
	report.notices, err = b.notices(ctx, p, cfg, pl.shopNotices)
	if err != nil {
		return err
	}
	return report.print(os.Stdout, os.Stderr)
}

// The JSON output of make bench-shop, for programs.
type (
	shopJSON struct {
		Rate    int                    `json:"reads_per_s"`
		Sides   []shopSideJSON         `json:"sides"`
		Unknown map[string]unknownJSON `json:"unknown_ids"`
		Notices noticesJSON            `json:"notices"`
	}
	shopSideJSON struct {
		Side    string             `json:"side"`
		P50     float64            `json:"p50_ms"`
		P99     float64            `json:"p99_ms"`
		Shares  map[string]float64 `json:"answered_by_percent"`
		Queries float64            `json:"queries_per_1000_reads"`
		Saved   float64            `json:"queries_saved_percent"` // of those of the side database
	}
	unknownJSON struct {
		Reads   int     `json:"reads"`
		Queries int64   `json:"queries"`
		P99     float64 `json:"p99_ms"`
	}
	noticesJSON struct {
		Orders  int                   `json:"orders"`
		All     spreadJSON            `json:"all"`
		Readers map[string]spreadJSON `json:"readers"`
	}
)

func (r shopReport) json() shopJSON {
	j := shopJSON{Rate: r.rate, Unknown: map[string]unknownJSON{}, Notices: noticesJSON{len(r.notices.all), r.notices.all.spread().json(), map[string]spreadJSON{}}}
	var baseline float64
	for _, side := range shopSides {
		var p50, p99, queries []float64
		reads, sources := 0, map[string]int64{}
		for _, t := range r.turns[side.name] {
			spread := t.took.spread()
			p50, p99 = append(p50, ms(spread.p50)), append(p99, ms(spread.p99))
			queries = append(queries, 1000*float64(t.selects)/float64(len(t.took)))
			for source, n := range t.sources {
				sources[source] += n
				reads += int(n)
			}
		}
		row := shopSideJSON{Side: side.name, P50: round(median(p50), 3), P99: round(median(p99), 3), Queries: round(median(queries), 1), Shares: map[string]float64{}}
		if side.name == shopSides[0].name {
			baseline = median(queries)
		}
		row.Saved = round(100*(1-median(queries)/baseline), 1)
		for source, n := range sources {
			row.Shares[source] = round(100*float64(n)/float64(reads), 1)
		}
		j.Sides = append(j.Sides, row)
	}
	for side, u := range r.unknown {
		j.Unknown[side] = unknownJSON{len(u.took), u.selects, ms(percentile(u.took, 0.99))}
	}
	for reader, times := range r.notices.readers {
		j.Notices.Readers[reader] = times.spread().json()
	}
	return j
}

// print writes the object to out and the tables to tables.
func (r shopReport) print(out, tables io.Writer) error {
	j := r.json()
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%d reads/s\tp50 ms\tp99 ms\tqueries for 1000 reads\tsaved %%\tlocal %%\tredis %%\tdatabase %%\t\n", j.Rate)
	for _, s := range j.Sides {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n", s.Side, s.P50, s.P99, s.Queries, s.Saved,
			s.Shares[checkout.FromLocal], s.Shares[checkout.FromRedis], s.Shares[checkout.FromDatabase])
	}
	fmt.Fprint(w, "\nunknown ids\treads\tqueries\tp99 ms\t\n")
	for _, side := range slices.Sorted(maps.Keys(j.Unknown)) {
		u := j.Unknown[side]
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t\n", side, u.Reads, u.Queries, u.P99)
	}
	fmt.Fprintf(w, "\nclose to notice, %d orders\tp50 ms\tp99 ms\tmax ms\t\n", j.Notices.Orders)
	for _, reader := range slices.Sorted(maps.Keys(j.Notices.Readers)) {
		s := j.Notices.Readers[reader]
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t\n", reader, s.P50, s.P99, s.Max)
	}
	fmt.Fprintf(w, "all three\t%.0f\t%.0f\t%.0f\t\n\n", j.Notices.All.P50, j.Notices.All.P99, j.Notices.All.Max)
	if err := w.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(j)
}
