package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/topics"
)

// warmUp is how long a relay serves all its partitions before it is watched, so
// that one-time work at its start is not measured.
const warmUp = 3 * time.Second

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
}

// usage is what a process of the program, and the broker, used while they were watched.
type usage struct {
	CPU    measure.Number `json:"cpu_percent"`        // of one core
	Broker measure.Number `json:"broker_cpu_percent"` // of one core
	RSSMB  measure.Number `json:"rss_mb"`             // peak of the process since its start
	Read   measure.Number `json:"read_bytes_per_minute"`
}

// serve creates a pipeline's topics with the program itself.
func (p *workspace) serve(program, dir string) (*served, error) {
	s := &served{workspace: p, program: program}
	prefix := p.name("pipeline") + "_"
	s.file = filepath.Join(dir, prefix+"topics.yaml")
	if err := os.WriteFile(s.file, fmt.Appendf(nil, pipelineFile, prefix, partitions), 0o600); err != nil {
		return nil, err
	}
	var err error
	if s.cfg, err = config.Load(s.file); err != nil {
		return nil, err
	}
	for _, t := range topics.Specs(s.cfg) {
		p.topics[t.Name] = t.Partitions
	}
	if printed, err := s.command("topics", "apply").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("orderclose topics apply: %w\n%s", err, printed)
	}
	for _, b := range s.cfg.Buckets {
		p.groups = append(p.groups, s.cfg.RelayGroup(b))
	}
	return s, nil
}

// command returns a command of the program with its environment.
func (s *served) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, append(args, "--config", s.file)...)
	cmd.Env = append(os.Environ(), environ.EnvBrokers+"="+strings.Join(s.workspace.brokers, ","), environ.EnvListen+"=127.0.0.1:0")
	return cmd
}

// runRelay starts a relay. It returns when want relays, with this one, serve all partitions.
func (s *served) runRelay(ctx context.Context, want int) (*running, error) {
	relay, err := s.run("run", "relay")
	if err != nil {
		return nil, err
	}
	if err := s.awaitRelays(ctx, want); err != nil {
		return nil, errors.Join(err, relay.stop())
	}
	return relay, nil
}

// awaitRelays waits until want relays serve all partitions.
func (s *served) awaitRelays(ctx context.Context, want int) error {
	for _, b := range s.cfg.Buckets {
		if err := s.workspace.awaitMembers(ctx, s.cfg.RelayGroup(b), want); err != nil {
			return err
		}
	}
	return nil
}

// watch measures what a process and the broker use for a while.
func (s *served) watch(ctx context.Context, pid int, during time.Duration) (usage, error) {
	broker, err := listenerOf(s.workspace.brokers[0])
	if err != nil {
		return usage{}, err
	}
	before, err1 := process.UsedBy(pid)
	brokerBefore, err2 := process.UsedBy(broker)
	read := func() int64 { return process.Field(fmt.Sprintf("/proc/%d/io", pid), "rchar:") } // from connections and files
	began, readBefore := time.Now(), read()
	if !sleep(ctx, during) {
		return usage{}, ctx.Err()
	}
	after, err3 := process.UsedBy(pid)
	brokerAfter, err4 := process.UsedBy(broker)
	percent := func(d time.Duration) measure.Number {
		return measure.Number(100 * d.Seconds() / time.Since(began).Seconds())
	}
	return usage{percent(after.CPU - before.CPU), percent(brokerAfter.CPU - brokerBefore.CPU), megabytes(after.Peak),
		measure.Number(float64(read()-readBefore) / time.Since(began).Minutes())}, errors.Join(err1, err2, err3, err4)
}
