package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// consoleReport is the output of make bench-console.
type consoleReport struct {
	waiting, letters int
	pages            []timedPage
	renewed          durations // from a view of Now until the console has the new state of the topics
	read             int64     // records that the history of the order reads
	traffic          []traffic
	none, open       openCost
	without, with    []lateness
}

// The JSON form of consoleReport, for programs.
type (
	consoleJSON struct {
		Waiting int           `json:"waiting"`
		Letters int           `json:"dead_letters"`
		Pages   []pageJSON    `json:"pages"`
		Renewed spreadJSON    `json:"now_renewed"`
		Read    int64         `json:"order_records_read"`
		Traffic []trafficJSON `json:"brokers"`
		None    openJSON      `json:"no_page_open"`
		Open    openJSON      `json:"now_open"`
		Without streamJSON    `json:"lateness_without_console"`
		With    streamJSON    `json:"lateness_with_console"`
		Ratio   float64       `json:"lateness_p99_ratio"`
	}
	pageJSON struct {
		Page     string  `json:"page"`
		ColdP50  float64 `json:"cold_p50_ms"`
		ColdMax  float64 `json:"cold_max_ms"`
		WarmP50  float64 `json:"warm_p50_ms"`
		WarmMax  float64 `json:"warm_max_ms"`
		AgainP50 float64 `json:"again_p50_ms"`
		AgainMax float64 `json:"again_max_ms"`
	}
	trafficJSON struct {
		What     string  `json:"what"`
		Requests int64   `json:"requests"`
		Bytes    int64   `json:"bytes"`
		Ratio    float64 `json:"requests_by_status"` // requests, as a multiple of those of orderclose status
	}
	openJSON struct {
		CPU       float64 `json:"cpu_percent"`        // of one core
		BrokerCPU float64 `json:"broker_cpu_percent"` // of one core
		RSSMB     float64 `json:"rss_mb"`
	}
	streamJSON struct {
		P50   float64 `json:"p50_ms"`
		P99   float64 `json:"p99_ms"`
		Max   float64 `json:"max_ms"`
		Early int     `json:"early"`
	}
)

func (r consoleReport) json() consoleJSON {
	j := consoleJSON{Waiting: r.waiting, Letters: r.letters, Renewed: r.renewed.spread().json(), Read: r.read, None: r.none.json(), Open: r.open.json()}
	for _, p := range r.pages {
		cold, warm, again := p.cold.spread(), p.warm.spread(), p.again.spread()
		j.Pages = append(j.Pages, pageJSON{p.name, ms(cold.p50), ms(cold.max), ms(warm.p50), ms(warm.max), ms(again.p50), ms(again.max)})
	}
	for _, t := range r.traffic {
		j.Traffic = append(j.Traffic, trafficJSON{t.what, t.requests, t.bytes, round(float64(t.requests)/float64(r.traffic[0].requests), 2)})
	}
	j.Without, j.With = medianStream(r.without), medianStream(r.with)
	j.Ratio = round(j.With.P99/j.Without.P99, 2)
	return j
}

func (c openCost) json() openJSON {
	return openJSON{round(c.cpuPercent, 2), round(c.brokerPercent, 2), round(c.rssMB, 1)}
}

// medianStream returns the medians of the rounds, and the sum of the early records.
func medianStream(rounds []lateness) streamJSON {
	var p50, p99, worst []float64
	early := 0
	for _, l := range rounds {
		p50, p99, worst = append(p50, ms(l.p50)), append(p99, ms(l.p99)), append(worst, ms(l.worst))
		early += l.early
	}
	return streamJSON{round(median(p50), 3), round(median(p99), 3), round(median(worst), 3), early}
}

// print writes the object to out and the tables to tables.
func (r consoleReport) print(out, tables io.Writer) error {
	j := r.json()
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\npage, ms\tafter the start: p50\tmax\toutdated: p50\tmax\tagain: p50\tmax\t\n")
	for _, p := range j.Pages {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t\n", p.Page, p.ColdP50, p.ColdMax, p.WarmP50, p.WarmMax, p.AgainP50, p.AgainMax)
	}
	fmt.Fprintf(w, "\nan outdated Now has the new state of the topics after %.0f ms (p50), %.0f ms (max)\n", j.Renewed.P50, j.Renewed.Max)
	fmt.Fprintf(w, "the history of the order reads %d records\n", r.read)
	fmt.Fprint(w, "\nasked of the brokers\trequests\tKB\tx status\t\n")
	for _, t := range j.Traffic {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.2f\t\n", t.What, t.Requests, float64(t.Bytes)/1000, t.Ratio)
	}
	fmt.Fprint(w, "\nconsole with\t% of one core\tbroker, % of one core\tRSS MB\t\n")
	fmt.Fprintf(w, "no page\t%.2f\t%.2f\t%.1f\t\n", j.None.CPU, j.None.BrokerCPU, j.None.RSSMB)
	fmt.Fprintf(w, "Now open\t%.2f\t%.2f\t%.1f\t\n", j.Open.CPU, j.Open.BrokerCPU, j.Open.RSSMB)
	fmt.Fprint(w, "\nlateness of the relay\tp50 ms\tp99 ms\tmax ms\tearly\t\n")
	fmt.Fprintf(w, "without a console\t%.2f\t%.2f\t%.2f\t%d\t\n", j.Without.P50, j.Without.P99, j.Without.Max, j.Without.Early)
	fmt.Fprintf(w, "Now open\t%.2f\t%.2f\t%.2f\t%d\t\n", j.With.P50, j.With.P99, j.With.Max, j.With.Early)
	fmt.Fprintf(w, "ratio\t%.2f\t%.2f\t%.2f\t\t\n\n", j.With.P50/j.Without.P50, j.Ratio, j.With.Max/j.Without.Max)
	if err := w.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(j)
}
