package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// summary is the JSON object on stdout. Each number is the median of the rounds; early and lost
// are sums.
type summary struct {
	W1      []latenessJSON `json:"w1,omitempty"`
	W2      []drainJSON    `json:"w2,omitempty"`
	W3      []latenessJSON `json:"w3,omitempty"`
	W4      []crashJSON    `json:"w4,omitempty"`
	W5      []ordersJSON   `json:"w5,omitempty"`
	W6      []waitingJSON  `json:"w6,omitempty"`
	LeftOut []leftOutJSON  `json:"left_out,omitempty"`
}

type (
	latenessJSON struct {
		System string  `json:"system"`
		P50    float64 `json:"p50_ms"`
		P99    float64 `json:"p99_ms"`
		Early  int     `json:"early"`
		Lost   int     `json:"lost"`
	}
	drainJSON struct {
		System  string  `json:"system"`
		DrainPS float64 `json:"drain_per_s"`
		Early   int     `json:"early"`
		Lost    int     `json:"lost"`
	}
	crashJSON struct {
		System string  `json:"system"`
		Victim string  `json:"victim"`
		GapS   float64 `json:"gap_s"`
		Early  int     `json:"early"`
		Lost   int     `json:"lost"`
	}
	ordersJSON struct {
		System string  `json:"system"`
		LastS  float64 `json:"last_closed_s"`
	}
	waitingJSON struct {
		System     string  `json:"system"`
		ServerIdle float64 `json:"server_idle_percent"`
		ClientIdle float64 `json:"client_idle_percent"`
		DiskMB     float64 `json:"disk_mb"`
		Queries    float64 `json:"queries_per_minute"`
	}
	leftOutJSON struct {
		System   string `json:"system"`
		Workload string `json:"workload"`
		Why      string `json:"why"`
	}
)

func summarize(all []result) (s summary) {
	for _, g := range grouped(all) {
		name := g.first().System
		if why := g.leftOut(); why != "" {
			s.LeftOut = append(s.LeftOut, leftOutJSON{name, g.first().Workload, why})
			continue
		}
		lateness := latenessJSON{name, g.median(p50), g.median(p99), g.sum(early), g.sum(lost)}
		switch g.first().Workload {
		case "w1":
			s.W1 = append(s.W1, lateness)
		case "w2":
			s.W2 = append(s.W2, drainJSON{name, g.median(drain), lateness.Early, lateness.Lost})
		case "w3":
			s.W3 = append(s.W3, lateness)
		case "w4":
			s.W4 = append(s.W4, crashJSON{name, g.first().Victim, g.median(gap), lateness.Early, lateness.Lost})
		case "w5":
			s.W5 = append(s.W5, ordersJSON{name, g.median(lastClosed)})
		case "w6":
			s.W6 = append(s.W6, waitingJSON{name, g.median(serverIdle), g.median(clientIdle), g.median(disk), g.median(queries)})
		}
	}
	return s
}

// print writes the object to out and a table to tables.
func (s summary) print(out, tables io.Writer) error {
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, load := range []struct {
		name string
		rows []latenessJSON
	}{{"w1", s.W1}, {"w3", s.W3}} {
		for _, r := range load.rows {
			fmt.Fprintf(w, "%s\t%s\tp50 %.2f ms\tp99 %.2f ms\tearly %d\tlost %d\t\n", load.name, r.System, r.P50, r.P99, r.Early, r.Lost)
		}
	}
	for _, r := range s.W2 {
		fmt.Fprintf(w, "w2\t%s\t%.0f/s\t\tearly %d\tlost %d\t\n", r.System, r.DrainPS, r.Early, r.Lost)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(s)
}
