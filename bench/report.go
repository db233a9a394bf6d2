package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// report is the output of make bench-relay.
type report struct {
	throughput []drained
	cold       lateness // at the first rate
	lateness   []lateness
	burst      burst
}

// The JSON form of report, for programs.
type (
	reportJSON struct {
		Throughput []throughputJSON `json:"throughput"`
		Lateness   []latenessJSON   `json:"lateness"`
		Cold       latenessJSON     `json:"lateness_cold"`
		Burst      burstJSON        `json:"burst"`
	}
	throughputJSON struct {
		Batch           int     `json:"batch"`
		RelayRPS        float64 `json:"relay_rps"`
		CopyRPS         float64 `json:"copy_rps"`
		ReaderWriterRPS float64 `json:"reader_writer_rps"`
		FranzRPS        float64 `json:"franz_rps"`
		CPUPerMillion   float64 `json:"cpu_s_per_million"` // of the relay, like the next field
		RSSMB           float64 `json:"rss_mb"`
	}
	latenessJSON struct {
		Rate  int     `json:"rate"`
		P50   float64 `json:"p50_ms"`
		P99   float64 `json:"p99_ms"`
		P999  float64 `json:"p999_ms"`
		Early int     `json:"early"`
	}
	burstJSON struct {
		Records int     `json:"records"`
		Last    float64 `json:"last_ms"`
	}
)

func (r report) json() reportJSON {
	j := reportJSON{Cold: r.cold.json(), Burst: burstJSON{r.burst.records, ms(r.burst.last)}}
	for _, d := range r.throughput {
		relay := d.turns[sideRelay]
		j.Throughput = append(j.Throughput, throughputJSON{
			Batch: d.batch, RelayRPS: round(relay.rps, 0), CopyRPS: round(d.turns[sideCopy].rps, 0),
			ReaderWriterRPS: round(d.turns[sideReaderWriter].rps, 0), FranzRPS: round(d.turns[sideFranz].rps, 0),
			CPUPerMillion: round(relay.cpuPerMil, 3), RSSMB: round(relay.rssMB, 1),
		})
	}
	for _, l := range r.lateness {
		j.Lateness = append(j.Lateness, l.json())
	}
	return j
}

func (l lateness) json() latenessJSON {
	return latenessJSON{l.rate, ms(l.p50), ms(l.p99), ms(l.p999), l.early}
}

// print writes the object to out and the tables to tables.
func (r report) print(out, tables io.Writer) error {
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nbatch\tside\trecords/s\tCPU-s/million\tRSS MB\trelay is\t\n")
	for _, d := range r.throughput {
		for _, side := range order {
			t := d.turns[side]
			ratio := ""
			if side != sideRelay {
				ratio = fmt.Sprintf("%.2f x", d.turns[sideRelay].rps/t.rps)
			}
			fmt.Fprintf(w, "%d\t%s\t%.0f\t%.2f\t%.0f\t%s\t\n", d.batch, side, t.rps, t.cpuPerMil, t.rssMB, ratio)
		}
	}
	fmt.Fprint(w, "\nrate/s\tbroker\tp50 ms\tp99 ms\tp99.9 ms\tworst ms\tearly\trelay CPU-s\tRSS MB\t\n")
	for _, l := range append([]lateness{r.cold}, r.lateness...) {
		broker := "warm"
		if l.cold {
			broker = "cold"
		}
		fmt.Fprintf(w, "%d\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%.2f\t%.0f\t\n", l.rate, broker, ms(l.p50), ms(l.p99), ms(l.p999), ms(l.worst),
			l.early, l.used.CPU.Seconds(), float64(l.used.Peak)/(1<<20))
	}
	fmt.Fprintf(w, "\nburst of\tlast ms\tearly\t\n%d\t%.1f\t%d\t\n\n", r.burst.records, ms(r.burst.last), r.burst.early)
	if err := w.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r.json())
}
