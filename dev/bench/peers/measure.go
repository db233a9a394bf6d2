package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/power"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// measurement is one run of a workload on a way. The servers run.
type measurement struct {
	spec    spec
	load    workload
	servers []*servers.Server
	run     run
	way     way
	worker  *process.Process
	tracker *tracker
	// publishing is the time for each message of the last part of the warm-up.
	publishing time.Duration
	killed     cpuMark       // CPU seconds of the processes that W4 or W7 has killed
	disks      []*power.Disk // of W7: the disk of each server
}

// openMeasurement opens the way, starts its worker, and warms it up. close must be called also
// after an error.
func openMeasurement(ctx context.Context, s spec, w workload, all []*servers.Server, dir, orderclose string) (*measurement, error) {
	id := make([]byte, runIDLength/2)
	rand.Read(id)
	m := &measurement{spec: s, load: w, servers: all, tracker: newTracker(w.messages)}
	m.run = run{
		Way: s.name, ID: hex.EncodeToString(id), Workload: w.name, Servers: addresses(all), Dir: dir, Program: orderclose,
		Publishers: w.publishers, SameDelay: w.sameDelay(),
	}
	m.way = s.make(m.run)
	if err := m.way.open(ctx); err != nil {
		return m, fmt.Errorf("open: %w", err)
	}
	// The messages of the warm-up have further numbers. They do not count, so they have a tracker
	// of their own.
	warm := newTracker(w.messages + w.warmUp)
	worker, err := newWorker(m.run, func(number int, at int64) {
		if number < w.messages {
			m.tracker.receive(number, at)
		} else {
			warm.receive(number, at)
		}
	})
	if err != nil {
		return m, err
	}
	if err := worker.Start(); err != nil {
		return m, err
	}
	m.worker = worker
	if err := m.warmUp(ctx, warm); err != nil {
		return m, fmt.Errorf("warm-up: %w", err)
	}
	runtime.GC()
	return m, nil
}

func (m *measurement) close() {
	stop(m.worker)
	m.way.close()
	os.RemoveAll(m.run.Dir)
}

// warmUp publishes messages of the same kind and waits for them: a few, so that everything is
// connected, and then the rest.
func (m *measurement) warmUp(ctx context.Context, warm *tracker) error {
	limit := 2*time.Minute + 2*m.spec.interval
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := 0
	for _, stage := range m.load.warmUps() {
		p := publisher{way: m.way, run: m.run.ID, tracker: warm, first: m.load.messages + done, retry: true} // a cold broker may refuse
		start := time.Now()
		p.all(ctx, stage, stage.delays(), time.Time{})
		if p.refuse != nil {
			return p.refuse
		}
		m.publishing = time.Since(start) / time.Duration(stage.messages)
		done += stage.messages
		for warm.arrived.Load() < int64(done) {
			if err := m.ended(); err != nil {
				return err
			}
			if !sleep(ctx, 10*time.Millisecond) {
				return fmt.Errorf("%d of %d messages came back in %v: %w", warm.arrived.Load(), done, limit, ctx.Err())
			}
		}
	}
	return nil
}

// lead returns the time from the first message of W2 to the instant. A machine that is busy needs
// longer than the way's own lead.
func (m *measurement) lead() time.Duration {
	return max(cmp.Or(m.spec.lead, defaultLead), 2*m.publishing*time.Duration(m.load.messages))
}

// ended says whether the worker, or the process of the way, has ended by itself.
func (m *measurement) ended() error {
	if w, ok := m.way.(withProgram); ok {
		if err := w.process().Ended(); err != nil {
			return err
		}
	}
	return m.worker.Ended()
}

// serverPIDs returns the processes that count as the server, with all their children.
func (m *measurement) serverPIDs() (pids []int) {
	for _, s := range m.servers {
		pids = append(pids, s.PIDs()...)
	}
	if w, ok := m.way.(withProgram); ok {
		pids = append(pids, w.process().PID())
	}
	return pids
}

// cpuMark is the CPU seconds at a time.
type cpuMark struct {
	at                                   time.Time
	server, client, worker, kernel, idle float64
}

func (m *measurement) markCPU() cpuMark {
	mark := cpuMark{at: time.Now(), server: m.killed.server + cpuOf(m.serverPIDs()...), worker: m.killed.worker + cpuOf(m.worker.PID())}
	own, _ := process.ReadStat(os.Getpid())
	mark.client = own.CPU.Seconds() + mark.worker
	mark.kernel = cpuOf(kernelThreads)
	mark.idle = idleCPU()
	return mark
}

// charge writes the CPU time since a mark, and the memory, into the result.
func (m *measurement) charge(r *result, since cpuMark) {
	now := m.markCPU()
	r.Seconds = measure.Round(now.at.Sub(since.at).Seconds(), 2)
	server, client := now.server-since.server, now.client-since.client
	r.ServerCPU, r.ClientCPU = measure.Round(server, 2), measure.Round(client, 2)
	busy := now.at.Sub(since.at).Seconds()*float64(runtime.NumCPU()) - (now.idle - since.idle)
	r.OtherCPU = measure.Round(max(0, busy-server-client-(now.kernel-since.kernel)), 2)
	r.ServerMB = measure.Round(memoryOf(m.serverPIDs()...), 1)
	r.ClientMB = measure.Round(memoryOf(m.worker.PID())+proportionalMB(os.Getpid()), 1)
}

func (m *measurement) newResult() result {
	return result{System: m.spec.name, Workload: m.load.name, Messages: m.load.messages}
}

// measure publishes the workload and waits until everything has arrived.
func (m *measurement) measure(ctx context.Context) (result, error) {
	r := m.newResult()
	delays := m.load.delays()
	start := time.Now()
	mark := m.markCPU()
	var instant time.Time
	if m.load.atOnce {
		// Never a whole second, which would suit ways that know only seconds.
		instant = start.Add(m.lead()).Truncate(time.Second).Add(500 * time.Millisecond)
	}
	p := publisher{way: m.way, run: m.run.ID, tracker: m.tracker}
	limited, cancel := context.WithTimeout(ctx, m.load.publishLimit())
	p.all(limited, m.load, delays, instant)
	cancel()
	published := time.Now()
	if m.load.atOnce && published.After(instant) {
		return r, fmt.Errorf("the last message was accepted %v after all were due: this machine is too busy", published.Sub(instant))
	}
	err := m.await(ctx)
	m.charge(&r, mark)
	if err != nil {
		return r, err
	}
	sleep(ctx, time.Second) // for duplicates
	m.describe(&r, &p, start, published)
	return r, ctx.Err()
}

// publishLimit limits publishing.
func (w workload) publishLimit() time.Duration {
	if w.perSecond == 0 || w.kill || w.cut {
		return 4 * time.Minute
	}
	return time.Duration(w.messages/w.perSecond)*time.Second + time.Minute
}

// await waits until every accepted message has arrived, or is lost.
func (m *measurement) await(ctx context.Context) error {
	limit := m.tracker.lastDue().Add(maxWait + m.spec.interval)
	for !m.tracker.complete() && time.Now().Before(limit) {
		if err := m.ended(); err != nil {
			return err
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// describe writes what became of the messages into the result.
func (m *measurement) describe(r *result, p *publisher, start, published time.Time) {
	o := m.tracker.outcome()
	r.Refused = int(m.tracker.refused.Load())
	if p.refuse != nil {
		r.RefusedBy = p.refuse.Error()
	}
	r.AcceptedPS = measure.Round(float64(r.Messages-r.Refused)/published.Sub(start).Seconds(), 1)
	r.describeLateness(o.late)
	r.Early, r.Lost, r.Duplicates = o.early, o.lost, o.duplicates
	if o.early > 0 {
		r.EarliestMS = -milliseconds(o.late, 0)
	}
	if len(o.times) == 0 {
		return
	}
	last := time.Unix(0, o.times[len(o.times)-1])
	if m.load.atOnce {
		if after := last.Sub(m.tracker.lastDue()); after > 0 {
			r.DrainPS = measure.Round(float64(len(o.times))/after.Seconds(), 0)
		}
	} else if first := time.Unix(0, o.times[0]); m.run.SameDelay > 0 && last.After(first) {
		r.HeldPS = measure.Round(float64(len(o.times))/last.Sub(first).Seconds(), 1)
	}
}

// describeLateness writes the percentiles of sorted times into the result.
func (r *result) describeLateness(late []time.Duration) {
	r.P50, r.P99, r.P999, r.Max = milliseconds(late, 0.5), milliseconds(late, 0.99), milliseconds(late, 0.999), milliseconds(late, 1)
}

// milliseconds returns a percentile of sorted times.
func milliseconds(sorted []time.Duration, q float64) float64 {
	return measure.Round(float64(measure.Percentile(sorted, q))/float64(time.Millisecond), 3)
}
