package main

import "github.com/orderclose/orderclose/internal/testkit/measure"

// relayReport is the result of make bench-relay.
type relayReport struct {
	Throughput []drained  `json:"throughput"`
	Lateness   []lateness `json:"lateness"`
	Cold       lateness   `json:"lateness_cold"` // at the first rate
}

// drained is how fast each side drained sources with batches of one size: medians of its turns.
type drained struct {
	Batch int             `json:"batch"`
	Sides map[string]turn `json:"sides"`
}

// turn is the result of one side for one source.
type turn struct {
	RPS           measure.Number `json:"rps"`
	CPUPerMillion measure.Number `json:"cpu_s_per_million"` // records
	RSSMB         measure.Number `json:"rss_mb"`
}

// lateness is the distribution of received − due for the records of one rate.
type lateness struct {
	Rate int `json:"rate"`
	measure.Spread
	P999  measure.Millis `json:"p999_ms"`
	Early int            `json:"early"`
	CPU   measure.Number `json:"relay_cpu_s"`
	RSSMB measure.Number `json:"relay_rss_mb"`
}
