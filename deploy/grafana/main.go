// Command grafana writes the dashboards of this folder, one JSON file each:
//
//	cd deploy/grafana && go run .
//
// The files are what Grafana reads; change them here and not there. A test compares them with
// this program, and evaluates each query on the metrics of a running pipeline.
//
//	main.go         writes the files
//	dashboards.go   the overview, and the panels that several dashboards have
//	stages.go       the dashboards of the stages
//	rooms.go        the dashboards of rooms, from panels.yaml in their folders
//	json.go         the JSON of a dashboard
package main

import (
	"fmt"
	"os"
)

func main() {
	for _, d := range dashboards() {
		if err := os.WriteFile(d.file, d.json(), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
