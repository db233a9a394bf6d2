package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/orderclose/orderclose"
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
	readMB     float64 // what the relay has read since its start, nearly all of it from the brokers
	cpuSeconds float64 // CPU time since its start
	// brokerPercent and metadata are zero unless counters are set.
	brokerPercent float64 // of one core
	metadata      float64 // bytes per minute
}

// benchWaiting puts waiting records into the 12-hour bucket of one pipeline and
// none into another, and watches the relays of both in turns.
func benchWaiting(ctx context.Context, p *workspace, pl plan, program string) error {
	dir, err := os.MkdirTemp("", "orderclose-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	empty, err := p.serve(program, dir)
	if err != nil {
		return err
	}
	full, err := p.serve(program, dir)
	if err != nil {
		return err
	}
	park := full.cfg.Buckets[slices.IndexFunc(full.cfg.Buckets, func(b orderclose.Bucket) bool { return b.Length == parkedFor })]
	l := load{records: pl.parked, partitions: partitions, batch: parkedBatch, size: recordSize, due: time.Now().Add(parkedFor)}
	if err := p.fill(ctx, park.Topic, l); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d records are parked in a bucket of %v\n", pl.parked, parkedFor)
	var idle, waiting []watched
	for round := range pl.rounds {
		a, err := empty.watch(ctx, pl.watch)
		if err != nil {
			return fmt.Errorf("with empty topics: %w", err)
		}
		b, err := full.watch(ctx, pl.watch)
		if err != nil {
			return fmt.Errorf("with parked records: %w", err)
		}
		fmt.Fprintf(os.Stderr, "round %d  empty %.2f %% and %.1f MB, parked %.2f %% and %.1f MB; since the start %.1f and %.1f MB read, %.2f and %.2f CPU-s\n",
			round+1, a.cpuPercent, a.rssMB, b.cpuPercent, b.rssMB, a.readMB, b.readMB, a.cpuSeconds, b.cpuSeconds)
		idle, waiting = append(idle, a), append(waiting, b)
	}
	if err := full.allWait(ctx, park.Topic, pl.parked); err != nil {
		return err
	}
	return waitingReport{pl.parked, pl.watch, medianWatched(idle), medianWatched(waiting)}.print(os.Stdout, os.Stderr)
}

// parkedFor is the length of the bucket with the waiting records, and their delay.
const parkedFor = 12 * time.Hour

// serve creates a pipeline's topics with the program itself.
func (p *workspace) serve(program, dir string) (*served, error) {
	s := &served{workspace: p, program: program, brokers: p.brokers}
	s.counters = func() (int64, process.Used, error) { return 0, process.Used{}, nil }
	prefix := p.name("waiting") + "_"
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
		readMB: float64(process.Field(fmt.Sprintf("/proc/%d/io", relay.PID()), "rchar:")) / (1 << 20), cpuSeconds: after.CPU.Seconds(),
		brokerPercent: 100 * (brokerAfter.CPU - broker.CPU).Seconds() / took.Seconds(),
		metadata:      float64(metadataAfter-metadata) / took.Minutes(),
	}, nil
}

// allWait returns an error if a record has left the topic or was added.
func (s *served) allWait(ctx context.Context, topic string, records int) error {
	for _, t := range append(s.topics(), s.cfg.Topics.Close, s.cfg.Topics.DeadLetter) {
		want := 0
		if t == topic {
			want = records
		}
		if n, err := s.workspace.length(ctx, t); err != nil || n != want {
			return errors.Join(err, fmt.Errorf("%s holds %d records, want %d", t, n, want))
		}
	}
	return nil
}

// topics returns the topics of the buckets.
func (s *served) topics() (names []string) {
	for _, b := range s.cfg.Buckets {
		names = append(names, b.Topic)
	}
	return names
}

func medianWatched(turns []watched) watched {
	of := func(figure func(watched) float64) float64 {
		var all []float64
		for _, t := range turns {
			all = append(all, figure(t))
		}
		return median(all)
	}
	return watched{
		cpuPercent: of(func(w watched) float64 { return w.cpuPercent }), rssMB: of(func(w watched) float64 { return w.rssMB }),
		readMB: of(func(w watched) float64 { return w.readMB }), cpuSeconds: of(func(w watched) float64 { return w.cpuSeconds }),
	}
}

// waitingReport is the output of make bench-waiting.
type waitingReport struct {
	records       int
	during        time.Duration
	idle, waiting watched
}

// waitingJSON is its JSON form, for programs.
type waitingJSON struct {
	Waiting struct {
		Records   int     `json:"records"`
		Bucket    string  `json:"bucket"`
		Seconds   float64 `json:"seconds"`
		CPU       float64 `json:"cpu_percent"` // of one core
		IdleCPU   float64 `json:"idle_cpu_percent"`
		RSSMB     float64 `json:"rss_mb"`
		IdleRSSMB float64 `json:"idle_rss_mb"`
		AboveIdle float64 `json:"above_idle_mb"`
		ReadMB    float64 `json:"read_mb"` // since the start of the relay
		IdleRead  float64 `json:"idle_read_mb"`
		CPUSecs   float64 `json:"cpu_s"` // likewise
		IdleSecs  float64 `json:"idle_cpu_s"`
	} `json:"waiting"`
}

func (r waitingReport) json() (j waitingJSON) {
	w := &j.Waiting
	w.Records, w.Bucket, w.Seconds = r.records, orderclose.ShortDuration(parkedFor), r.during.Seconds()
	w.CPU, w.IdleCPU = round(r.waiting.cpuPercent, 2), round(r.idle.cpuPercent, 2)
	w.RSSMB, w.IdleRSSMB, w.AboveIdle = round(r.waiting.rssMB, 1), round(r.idle.rssMB, 1), round(r.waiting.rssMB-r.idle.rssMB, 1)
	w.ReadMB, w.IdleRead = round(r.waiting.readMB, 1), round(r.idle.readMB, 1)
	w.CPUSecs, w.IdleSecs = round(r.waiting.cpuSeconds, 2), round(r.idle.cpuSeconds, 2)
	return j
}

// print writes the object to out and the table to tables.
func (r waitingReport) print(out, tables io.Writer) error {
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nrelay with\t% of one core\tRSS MB\tread MB\tCPU-s\t\n")
	line := func(what string, m watched) {
		fmt.Fprintf(w, "%s\t%.2f\t%.1f\t%.1f\t%.2f\t\n", what, m.cpuPercent, m.rssMB, m.readMB, m.cpuSeconds)
	}
	line("empty topics", r.idle)
	line(fmt.Sprint(r.records, " parked"), r.waiting)
	line("difference", watched{
		cpuPercent: r.waiting.cpuPercent - r.idle.cpuPercent, rssMB: r.waiting.rssMB - r.idle.rssMB,
		readMB: r.waiting.readMB - r.idle.readMB, cpuSeconds: r.waiting.cpuSeconds - r.idle.cpuSeconds,
	})
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r.json())
}
