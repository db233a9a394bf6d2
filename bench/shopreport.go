package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/producer"
)

// shopReport is the result of make bench-shop.
type shopReport struct {
	Rate    int                    `json:"reads_per_s"`
	Sides   []shopRow              `json:"sides"`
	Unknown map[string]unknownCost `json:"unknown_ids"` // by side
	Notices noticeTimes            `json:"notices"`
}

// shopRow is what the reads of a side took and cost: medians of its turns.
type shopRow struct {
	Side    string                    `json:"side"`
	P50     measure.Millis            `json:"p50_ms"`
	P99     measure.Millis            `json:"p99_ms"`
	Shares  map[string]measure.Number `json:"answered_by_percent"`
	Queries measure.Number            `json:"queries_per_1000_reads"`
	Saved   measure.Number            `json:"queries_saved_percent"` // of those of the side database
}

// unknownCost is the cost of reading ids that no order has.
type unknownCost struct {
	Reads   int            `json:"reads"`
	Queries int64          `json:"queries"`
	P99     measure.Millis `json:"p99_ms"`
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

	report := shopReport{Rate: pl.shopRate, Unknown: map[string]unknownCost{}}
	turns := map[string][]shopReads{}
	for round := range pl.rounds {
		for _, side := range shopSides {
			fmt.Fprintf(os.Stderr, "reads, %s, round %d: %d a second for %v\n", side.name, round+1, pl.shopRate, pl.shopSpell)
			turn, err := b.measure(ctx, side, round, pl.shopRate, pl.shopSpell)
			if err != nil {
				return err
			}
			turns[side.name] = append(turns[side.name], turn)
		}
	}
	for _, side := range shopSides {
		row := rowOf(side.name, turns[side.name])
		row.Saved = 100 * (1 - row.Queries/rowOf(side.name, turns[shopSides[0].name]).Queries)
		report.Sides = append(report.Sides, row)
	}
	for _, side := range shopSides[1:] {
		fmt.Fprintf(os.Stderr, "%d unknown ids, %s\n", unknownReads, side.name)
		selects, took, err := b.unknown(ctx, side)
		if err != nil {
			return err
		}
		report.Unknown[side.name] = unknownCost{len(took), selects, measure.SpreadOf(took).P99}
	}
	fmt.Fprintf(os.Stderr, "notices of %d orders\n", pl.shopNotices)
	report.Notices, err = b.notices(ctx, p, cfg, pl.shopNotices)
	if err != nil {
		return err
	}
	return measure.Print(os.Stdout, os.Stderr, report)
}

func rowOf(side string, turns []shopReads) shopRow {
	row := shopRow{Side: side, Shares: map[string]measure.Number{}}
	row.P50 = measure.MedianOf(turns, func(t shopReads) measure.Millis { return t.took.P50 })
	row.P99 = measure.MedianOf(turns, func(t shopReads) measure.Millis { return t.took.P99 })
	row.Queries = measure.MedianOf(turns, func(t shopReads) measure.Number { return 1000 * measure.Number(t.selects) / measure.Number(t.reads) })
	var all int64
	for _, t := range turns {
		for source, n := range t.sources {
			row.Shares[source] += measure.Number(n)
			all += n
		}
	}
	for source := range row.Shares {
		row.Shares[source] *= 100 / measure.Number(all)
	}
	return row
}
