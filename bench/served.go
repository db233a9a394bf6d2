package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

const (
	// parkedBatch is the number of waiting records per batch.
	parkedBatch = 50
	// warmUp is how long a relay serves all its partitions before it is watched, so
	// that one-time work at its start is not measured.
	warmUp = 3 * time.Second
)

// pipelineFile is a topics.yaml with the default buckets.
const pipelineFile = `topics: {prefix: %s}
partitions: %d
replication: 1
buckets: [10s, 1m, 5m, 30m, 2h, 12h]
`

// served is a pipeline's topics, and the production program as a relay process that
// serves them at times.
type served struct {
	workspace *workspace
	program   string
	file      string // its topics.yaml
	cfg       *config.Config
	brokers   []string // the addresses that the program uses
	env       []string // further variables of the program, NAME=value
	// counters return the bytes of metadata that the relay has read, and the
	// resources that the broker has used.
	counters func() (metadata int64, broker process.Used, err error)
}

// watched is the resources that a relay used while it was watched.
type watched struct {
	cpuPercent float64 // of one core
	rssMB      float64 // peak of resident memory since its start
	// brokerPercent and metadata are zero unless counters are set.
	brokerPercent float64 // of one core
	metadata      float64 // bytes per minute
}

// serve creates a pipeline's topics with the program itself.
func (p *workspace) serve(program, dir string) (*served, error) {
	s := &served{workspace: p, program: program, brokers: p.brokers}
	s.counters = func() (int64, process.Used, error) { return 0, process.Used{}, nil }
	prefix := p.name("pipeline") + "_"
	s.file = filepath.Join(dir, prefix+"topics.yaml")
	if err := os.WriteFile(s.file, fmt.Appendf(nil, pipelineFile, prefix, partitions), 0o600); err != nil {
		return nil, err
	}
	var err error
	if s.cfg, err = config.Load(s.file); err != nil {
		return nil, err
	}
	var log bytes.Buffer
	cmd := s.command("topics", "apply", "-o", "json")
	cmd.Stderr = &log
	out, failed := cmd.Output()
	var applied struct {
		Fixed []struct{ Topic string } `json:"fixed"`
	}
	if err := json.Unmarshal(out, &applied); failed == nil {
		failed = err
	}
	for _, t := range applied.Fixed { // also if it failed halfway
		p.topics[t.Topic] = partitions
		if t.Topic == s.cfg.Topics.DeadLetter || t.Topic == s.cfg.Topics.Control {
			p.topics[t.Topic] = 1
		}
	}
	if failed != nil {
		return nil, fmt.Errorf("orderclose topics apply: %w\n%s", failed, log.String())
	}
	for _, b := range s.cfg.Buckets {
		p.groups = append(p.groups, s.cfg.RelayGroup(b))
	}
	return s, nil
}

// command returns a command of the program with its environment.
func (s *served) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, append(args, "--config", s.file)...)
	cmd.Env = append(os.Environ(), config.EnvBrokers+"="+strings.Join(s.brokers, ","), config.EnvListen+"=127.0.0.1:0")
	cmd.Env = append(cmd.Env, s.env...)
	return cmd
}

// watch runs a relay, waits until it serves all partitions, and measures its
// resources for a while.
func (s *served) watch(ctx context.Context, during time.Duration) (w watched, err error) {
	relay, err := s.run("run", "relay")
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, relay.stop()) }()
	for _, b := range s.cfg.Buckets {
		if err := s.workspace.awaitMembers(ctx, s.cfg.RelayGroup(b), 1); err != nil {
			return w, err
		}
	}
	fmt.Fprintf(os.Stderr, "warming up for %v, then watching for %v\n", warmUp, during)
	if !sleep(ctx, warmUp) {
		return w, ctx.Err()
	}
	before, err := process.UsedBy(relay.PID())
	if err != nil {
		return w, err
	}
	metadata, broker, err := s.counters()
	if err != nil {
		return w, err
	}
	begin := time.Now()
	if !sleep(ctx, during) {
		return w, ctx.Err()
	}
	after, err := process.UsedBy(relay.PID())
	if err != nil {
		return w, err
	}
	metadataAfter, brokerAfter, err := s.counters()
	if err != nil {
		return w, err
	}
	took := time.Since(begin)
	return watched{
		cpuPercent: 100 * (after.CPU - before.CPU).Seconds() / took.Seconds(), rssMB: float64(after.Peak) / (1 << 20),
		brokerPercent: 100 * (brokerAfter.CPU - broker.CPU).Seconds() / took.Seconds(),
		metadata:      float64(metadataAfter-metadata) / took.Minutes(),
	}, nil
}
