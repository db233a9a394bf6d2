package main

import "time"

// The workload of all measurements.
const (
	partitions = 12
	recordSize = 300
	// bucketLength is also the delay of the records in the lateness measurement.
	bucketLength = 5 * time.Second
	// turnLimit limits every wait.
	turnLimit = 3 * time.Minute
)

// plan holds the sizes of all measurements.
type plan struct {
	rounds  int
	warmUp  time.Duration // of the broker, before the throughput of relays is measured
	records int           // drained by each side
	batches []int         // records per batch in the source

	rates []int // records a second, for lateness
	spell time.Duration

	watch  time.Duration // how long a relay is watched
	settle time.Duration // pause after foreign topics are created

	closeOrders int   // orders that are closed in batches
	closeSlow   int   // orders that are closed one by one
	closeRates  []int // orders per second, end to end
	closers     []int // rows of the table of closers and pools
	pools       []int

	paidOrders int           // orders that are paid or closed, beside each kind of closing
	paidSpell  time.Duration // within which they are due

	outboxCheckouts int // made by each side
	outboxRows      int // dispatched

	sweepTables []int // orders in each table
}

func planFor(quick bool) plan {
	p := plan{
		rounds: 3, warmUp: 30 * time.Second, records: 1_000_000, batches: []int{6, 50, 3000},
		rates: []int{1000, 10_000}, spell: 60 * time.Second,
		watch: time.Minute, settle: 20 * time.Second,
		closeOrders: 100_000, closeSlow: 10_000, closeRates: []int{1000, 5000},
		closers: []int{1, 2, 4}, pools: []int{1, 2, 4, 8, 16},
		paidOrders: 8000, paidSpell: 25 * time.Second,
		outboxCheckouts: 20_000, outboxRows: 500_000,
		sweepTables: []int{1_000_000, 5_000_000},
	}
	if quick {
		p.rounds, p.warmUp, p.records = 1, 10*time.Second, 200_000
		p.rates, p.spell = []int{1000, 5000}, 8*time.Second
		p.watch, p.settle = 15*time.Second, 5*time.Second
		p.closeOrders, p.closeSlow, p.closeRates = 20_000, 2000, []int{1000}
		p.closers, p.pools = []int{1, 2}, []int{1, 2}
		p.paidOrders, p.paidSpell = 6000, 10*time.Second
		p.outboxCheckouts, p.outboxRows = 3000, 150_000
		p.sweepTables = []int{100_000, 500_000}
	}
	return p
}
