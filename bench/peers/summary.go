package main

// summary is the JSON object on stdout: the rows of each workload, by its name, and what was left out. Each
// number is the median of the rounds; early and lost are sums.
type summary map[string][]map[string]any

// figures are the numbers of each workload in the summary, by name.
var figures = map[string]map[string]func(result) float64{
	"w1": {"p50_ms": p50, "p99_ms": p99},
	"w2": {"drain_per_s": drain},
	"w3": {"p50_ms": p50, "p99_ms": p99},
	"w4": {"gap_s": gap},
	"w5": {"last_closed_s": lastClosed},
	"w6": {"server_idle_percent": serverIdle, "client_idle_percent": clientIdle, "disk_mb": disk, "queries_per_minute": queries},
	"w7": {"overdue_s": overdue, "p99_ms": p99},
}

func summarize(all []result) summary {
	s := summary{}
	for _, g := range grouped(all) {
		first, row := g.first(), map[string]any{"system": g.first().System}
		if why := g.leftOut(); why != "" {
			row["workload"], row["why"] = first.Workload, why
			s["left_out"] = append(s["left_out"], row)
			continue
		}
		for name, of := range figures[first.Workload] {
			row[name] = g.median(of)
		}
		if first.Victim != "" {
			row["victim"] = first.Victim
		}
		if first.Workload == "w7" {
			row["acknowledged"] = g.sum(acknowledged)
		}
		if first.Workload != "w5" && first.Workload != "w6" { // of messages, not of orders
			row["early"], row["lost"] = g.sum(early), g.sum(lost)
		}
		s[first.Workload] = append(s[first.Workload], row)
	}
	return s
}
