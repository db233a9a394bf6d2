package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/power"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// session measures ways one after the other, each on servers of its own.
type session struct {
	ways      []spec
	workloads []string
	rounds    int
	quick     bool
	file      string        // of results
	dir       string        // of servers and runs; the caller removes it
	program   string        // orderclose
	disks     []*power.Disk // in W7: of each server of the way that is measured
}

// allWorkloads are the names of the workloads.
var allWorkloads = []string{"w1", "w2", "w3", "w4", "w5", "w6", "w7"}

// runLimit limits one measurement, with its warm-up.
const runLimit = 9 * time.Minute

// run measures everything. A way that cannot be measured gets a result that says why; only an
// interrupt ends the session.
func (s *session) run(ctx context.Context) error {
	for _, way := range s.ways {
		var onServers, onDisks []string
		for _, w := range s.workloads {
			switch {
			case !way.does(w) || w == "w5": // W5 is of all ways in turns
			case w == "w7":
				onDisks = append(onDisks, w)
			default:
				onServers = append(onServers, w)
			}
		}
		for _, some := range [][]string{onServers, onDisks} {
			if err := s.measureWay(ctx, way, some); err != nil {
				return err
			}
		}
	}
	if slices.Contains(s.workloads, "w5") {
		return s.measureOrders(ctx)
	}
	return nil
}

// errNotInstalled means that a server cannot be installed on this machine.
var errNotInstalled = errors.New("cannot be installed")

// startServers installs and starts the servers of a way with empty folders below dir. Those that were started
// must be stopped also after an error.
func startServers(ctx context.Context, dir string, way spec) (started []*servers.Server, err error) {
	for _, w := range way.servers {
		if err := servers.Install(ctx, w.kind); err != nil {
			return started, fmt.Errorf("%s %w: %w", w.kind, errNotInstalled, err)
		}
		if way.cluster != nil {
			return way.cluster(ctx, dir)
		}
		s, err := servers.New(w.kind, filepath.Join(dir, w.kind), w.arguments...)
		if err != nil {
			return started, err
		}
		started = append(started, s)
		if err := s.Start(ctx); err != nil {
			return started, err
		}
	}
	return started, nil
}

// stopServers ends servers and removes the folder above theirs. Of a cluster the last ones would wait for
// a majority, so all are killed. Stop ends the name servers.
func stopServers(dir string, started []*servers.Server) {
	if err := servers.KillAll(started...); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
	for _, s := range started {
		if err := s.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
		}
	}
	os.RemoveAll(dir)
}

// addresses returns the addresses of the servers by their kind. RocketMQ's clients ask its name
// server, "rocketmq-names".
func addresses(started []*servers.Server) map[string]string {
	all := map[string]string{}
	for _, s := range started {
		all[s.Kind] = strings.TrimPrefix(all[s.Kind]+","+s.Addr(), ",")
		if port, err := os.ReadFile(filepath.Join(s.Dir, "names", "port")); err == nil {
			all[s.Kind+"-names"] = net.JoinHostPort("127.0.0.1", strings.TrimSpace(string(port)))
		}
	}
	return all
}

// measureWay starts the servers of a way and measures all workloads on them.
func (s *session) measureWay(ctx context.Context, way spec, workloads []string) error {
	if len(workloads) == 0 {
		return nil
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", way.name, strings.Join(workloads, " "))
	dir := filepath.Join(s.dir, way.name)
	var started []*servers.Server
	var err error
	if workloads[0] == "w7" {
		defer s.closeDisks(dir)
		err = s.openDisks(dir, way)
	}
	if err == nil {
		started, err = startServers(ctx, dir, way)
	}
	defer func() { stopServers(dir, started) }()
	for range s.rounds {
		for _, name := range workloads {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				if failed := s.leaveOut(way, name, err.Error()); failed != nil {
					return failed
				}
				continue
			}
			if err := s.measureWorkload(ctx, way, name, started); err != nil {
				return err
			}
		}
	}
	return nil
}

// diskSize is the size of the disk of a server in W7. Its image takes only the space that is used.
const diskSize = 8 << 30

// openDisks mounts a disk on the folder of each server of a way.
func (s *session) openDisks(dir string, way spec) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, w := range way.servers {
		d, err := power.New(filepath.Join(dir, w.kind+".disk"), filepath.Join(dir, w.kind), diskSize)
		if err != nil {
			return err
		}
		s.disks = append(s.disks, d)
	}
	return nil
}

// closeDisks unmounts the disks and removes them with the folder that has them.
func (s *session) closeDisks(dir string) {
	for _, d := range s.disks {
		if err := d.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
		}
	}
	s.disks = nil
	os.RemoveAll(dir)
}

func (s *session) leaveOut(way spec, workload, why string) error {
	fmt.Fprintf(os.Stderr, "%s %s: left out: %s\n", way.name, workload, why)
	return s.keep(result{System: way.name, Workload: workload, LeftOut: firstLine(why)})
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// measureWorkload measures a workload once, W4 once for each victim.
func (s *session) measureWorkload(ctx context.Context, way spec, name string, started []*servers.Server) error {
	w := workloadOf(name, s.quick)
	victims := []string{""}
	if w.kill {
		victims = way.victims()
	}
	for _, victim := range victims {
		limited, cancel := context.WithTimeout(ctx, runLimit)
		r, err := s.measureOnce(limited, way, w, started, victim)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.LeftOut = firstLine(err.Error())
			fmt.Fprintf(os.Stderr, "%s %s failed: %v\n", way.name, name, err)
		}
		r.System, r.Workload, r.Victim = way.name, name, victim
		if err := s.keep(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) measureOnce(ctx context.Context, way spec, w workload, started []*servers.Server, victim string) (r result, err error) {
	dir, err := os.MkdirTemp(s.dir, "run-")
	if err != nil {
		return r, err
	}
	for _, server := range started { // one may be down, because a crash could not be undone
		if err := server.Restart(ctx); err != nil {
			return r, err
		}
	}
	m, err := openMeasurement(ctx, way, w, started, dir, s.program)
	defer m.close()
	if err != nil {
		return r, err
	}
	m.disks = s.disks
	switch {
	case w.kill || w.cut:
		r, err = m.measureCrash(ctx, victim)
	case w.watch > 0:
		r, err = m.measureWaiting(ctx)
	default:
		r, err = m.measure(ctx)
	}
	if err == nil {
		r.Settings = m.way.settings(ctx)
	}
	return r, err
}

// keep appends a result to the file, and prints the line.
func (s *session) keep(r result) error {
	r.Time, r.Quick = time.Now().UTC().Format(time.RFC3339), s.quick
	r.Cores = runtime.NumCPU()
	r.Machine = fmt.Sprintf("%d cores, %s/%s, %s", r.Cores, runtime.GOOS, runtime.GOARCH, runtime.Version())
	return appendResult(s.file, r)
}
