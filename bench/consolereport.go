package main

import "github.com/orderclose/orderclose/internal/testkit/measure"

// consoleReport is the result of make bench-console.
type consoleReport struct {
	Waiting int            `json:"waiting"`
	Letters int            `json:"dead_letters"`
	Pages   []timedPage    `json:"pages"`
	Renewed measure.Spread `json:"now_renewed"`        // from a view of Now until the console has the new state of the topics
	Read    int64          `json:"order_records_read"` // by the history of the order
	Traffic []traffic      `json:"brokers"`
	None    usage          `json:"no_page_open"`
	Open    usage          `json:"now_open"`
	Without stream         `json:"lateness_without_console"`
	With    stream         `json:"lateness_with_console"`
	Ratio   measure.Number `json:"lateness_p99_ratio"`
}

// timedPage is how long a page took: right after the start of the console; when what it shows is
// outdated; and again at once. A page waits 200 ms for new values if it has older ones.
type timedPage struct {
	Page     string         `json:"page"`
	ColdP50  measure.Millis `json:"cold_p50_ms"`
	ColdMax  measure.Millis `json:"cold_max_ms"`
	WarmP50  measure.Millis `json:"warm_p50_ms"`
	WarmMax  measure.Millis `json:"warm_max_ms"`
	AgainP50 measure.Millis `json:"again_p50_ms"`
	AgainMax measure.Millis `json:"again_max_ms"`
}

// traffic is what the brokers are asked and send.
type traffic struct {
	What     string         `json:"what"`
	Requests int64          `json:"requests"`
	Bytes    int64          `json:"bytes"`              // of requests and responses
	Ratio    measure.Number `json:"requests_by_status"` // requests, as a multiple of those of orderclose status
}

// stream is the lateness of a relay: medians of the rounds, and the sum of the early records.
type stream struct {
	measure.Spread
	Early int `json:"early"`
}

func streamOf(rounds []lateness) (s stream) {
	s.P50 = measure.MedianOf(rounds, func(l lateness) measure.Millis { return l.P50 })
	s.P99 = measure.MedianOf(rounds, func(l lateness) measure.Millis { return l.P99 })
	s.Max = measure.MedianOf(rounds, func(l lateness) measure.Millis { return l.Max })
	for _, l := range rounds {
		s.Early += l.Early
	}
	return s
}
