package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// measureOrders is W5. The module bench has the program for it, make bench-burst: orders with
// their stock in MariaDB, closed by the pipeline and by pollers in the same transaction, in turns.
func (s *session) measureOrders(ctx context.Context) error {
	var sides []string
	names := map[string]string{} // of ways, by side
	for _, way := range s.ways {
		side := ""
		switch {
		case way.name == "orderclose":
			side = "pipeline"
		case way.name == "cron":
			side = "cron"
		case way.interval > 0:
			side = "poller-" + way.interval.String()
		default:
			if err := s.leaveOut(way, "w5", way.cannot["w5"]); err != nil {
				return err
			}
			continue
		}
		sides = append(sides, side)
		names[side] = way.name
	}
	if len(sides) == 0 {
		return nil
	}
	turns, failed := s.burst(ctx, sides)
	if failed != nil {
		for _, way := range s.ways {
			if way.cannot["w5"] == "" {
				if err := s.leaveOut(way, "w5", failed.Error()); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	}
	for _, t := range turns.Turns {
		err := s.keep(result{
			System: names[t.Side], Workload: "w5", Messages: turns.Orders, LastClosedS: t.LastS, HalfClosedS: t.MedianS, ServerCPU: t.CPUS, ServerMB: t.RSSMB,
			Settings: map[string]string{"orders": "two lines each; make bench-burst, in turns with the other ways; the CPU is of the closing programs, without servers"},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// burstTurns is the output of make bench-burst.
type burstTurns struct {
	Orders int
	Turns  []struct {
		Side    string
		MedianS float64 `json:"median_s"`
		LastS   float64 `json:"last_s"`
		CPUS    float64 `json:"cpu_s"`
		RSSMB   float64 `json:"rss_mb"`
	}
}

// burst runs the bench on servers of its own.
func (s *session) burst(ctx context.Context, sides []string) (t burstTurns, err error) {
	servers, err := startServers(ctx, s.scripts, filepath.Join(s.dir, "w5"), []server{{kind: "kafka"}, {kind: "mariadb"}})
	defer func() { stopServers(servers) }()
	if err != nil {
		return t, err
	}
	at := addresses(servers)
	w := workloadOf("w5", s.quick)
	cmd := exec.CommandContext(ctx, s.bench, "burst", s.program)
	var printed bytes.Buffer
	cmd.Stderr = io.MultiWriter(os.Stderr, &printed)
	cmd.Env = append(os.Environ(), "SIDES="+strings.Join(sides, " "), "ROUNDS="+strconv.Itoa(w.rounds), "QUICK="+map[bool]string{true: "1"}[s.quick],
		"ORDERCLOSE_KAFKA_BROKERS="+at["kafka"], "ORDERCLOSE_DB_DSN=root@tcp("+at["mariadb"]+")/")
	out, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("bench burst: %w: %s", err, complaint("bench", printed.String()))
	}
	return t, json.Unmarshal(out, &t)
}
