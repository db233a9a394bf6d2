package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// result is one measurement: a line of a results file. A report is made of the lines of
// several runs. Times are in milliseconds or seconds as the names say; a missing number is 0.
type result struct {
	Time     string            `json:"time"` // of the end, RFC 3339
	System   string            `json:"system"`
	Workload string            `json:"workload"`
	Victim   string            `json:"victim,omitempty"` // of W4: server or worker
	Quick    bool              `json:"quick,omitempty"`
	LeftOut  string            `json:"left_out,omitempty"` // why nothing was measured
	Settings map[string]string `json:"settings,omitempty"`
	Machine  string            `json:"machine,omitempty"`
	Cores    int               `json:"cores,omitempty"`

	Messages   int     `json:"messages,omitempty"`
	AcceptedPS float64 `json:"accepted_per_s"`
	Refused    int     `json:"refused,omitempty"`
	RefusedBy  string  `json:"refused_by,omitempty"` // the first error
	HeldPS     float64 `json:"held_per_s"`           // received per second, of W1
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	P999       float64 `json:"p999_ms"`
	Max        float64 `json:"max_ms"`
	Early      int     `json:"early"`
	EarliestMS float64 `json:"earliest_ms,omitempty"` // how early at most
	Lost       int     `json:"lost"`
	Duplicates int     `json:"duplicates"`
	DrainPS    float64 `json:"drain_per_s,omitempty"`
	GapS       float64 `json:"gap_s,omitempty"` // of W4: the longest time without a receipt
	RestartS   float64 `json:"restart_s,omitempty"`

	Acknowledged int     `json:"acknowledged,omitempty"` // of W7: when the power was cut
	OverdueS     float64 `json:"overdue_s,omitempty"`    // of W7: from the return until the last message came that was due before it

	ServerCPU float64 `json:"server_cpu_s"`
	ClientCPU float64 `json:"client_cpu_s"`
	ServerMB  float64 `json:"server_mb"`
	ClientMB  float64 `json:"client_mb"`
	OtherCPU  float64 `json:"other_cpu_s"` // of the rest of the machine meanwhile
	Seconds   float64 `json:"seconds"`     // the CPU times are of this time

	LastClosedS float64 `json:"last_closed_s,omitempty"` // of W5: from the instant until the last order is closed
	HalfClosedS float64 `json:"half_closed_s,omitempty"`
	AllCPU      float64 `json:"all_cpu_s,omitempty"` // of W5: of all servers and programs, from the scheduling on

	ServerIdle float64 `json:"server_idle_percent,omitempty"` // of W6: of one core
	ClientIdle float64 `json:"client_idle_percent,omitempty"`
	DiskMB     float64 `json:"disk_mb,omitempty"`
	Queries    float64 `json:"queries_per_minute"` // to the main database
}

// busyShare is the share of the machine's CPU time that other programs may use before a result
// counts as disturbed.
const busyShare = 0.05

// own says whether the way is this project.
func (r result) own() bool { return strings.HasPrefix(r.System, "orderclose") }

// disturbed says whether other programs used much of the machine meanwhile.
func (r result) disturbed() bool { return r.OtherCPU > busyShare*r.Seconds*float64(r.Cores) }

// appendResult appends a line to a results file, and prints it.
func appendResult(file string, r result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", line)
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// readResults reads a results file.
func readResults(file string) (all []result, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, len(all)+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}
