// Command grafana writes the dashboards into the Helm chart, one JSON file each:
//
//	cd deploy/grafana && go run .
//
// The files are what Grafana reads; change them here and not there. A test compares them with
// this program, and evaluates each query on the metrics of a running pipeline.
//
//	main.go         writes the files
//	dashboards.go   the overview, and the expressions of both dashboards
//	stages.go       the stages
//	json.go         the JSON of a dashboard
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// folder is where the files are. Helm reads only files below the chart.
const folder = "../helm/orderclose/dashboards"

func main() {
	for _, d := range dashboards() {
		if err := os.WriteFile(filepath.Join(folder, d.file), d.json(), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
