package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// measureCrash is W4: in the middle of the workload it kills the server or the worker and starts
// it again at once. A leader of three is not started again. Refused messages are published again until they are accepted.
//
// It is also W7, which has no victim: it cuts the power of all servers. The lateness is that of messages that were due at least
// afterReturn after the power was back.
func (m *measurement) measureCrash(ctx context.Context, victim string) (result, error) {
	r := m.newResult()
	r.Victim = victim
	target, err := m.target(ctx, victim)
	for _, d := range m.disks { // only what the workload writes may be lost
		err = errors.Join(err, d.Sync())
	}
	if err != nil {
		return r, err
	}
	start := time.Now()
	mark := m.markCPU()
	middle := make(chan struct{})
	restarted := make(chan error, 1)
	var killed, back time.Time
	go func() {
		<-middle
		killed = time.Now()
		var err error
		if m.load.cut {
			r.Acknowledged, err = m.cutPower(ctx)
		} else {
			err = m.crash(ctx, target, victim)
		}
		back = time.Now()
		r.RestartS = measure.Round(back.Sub(killed).Seconds(), 3)
		restarted <- err
	}()
	p := publisher{way: m.way, run: m.run.ID, tracker: m.tracker, retry: true, progress: func(sent int) {
		if sent == m.load.messages/2 {
			close(middle)
		}
	}}
	limited, cancel := context.WithTimeout(ctx, m.load.publishLimit())
	p.all(limited, m.load, m.load.delays(), time.Time{})
	cancel()
	published := time.Now()
	select {
	case err := <-restarted:
		if err != nil {
			return r, fmt.Errorf("kill -9 of the %s: %w", victim, err)
		}
	case <-ctx.Done(): // maybe before the middle
		return r, ctx.Err()
	}
	if err := m.await(ctx); err != nil {
		return r, err
	}
	sleep(ctx, time.Second) // for duplicates
	m.charge(&r, mark)
	m.describe(&r, &p, start, published)
	if m.load.cut {
		overdue, late := m.tracker.around(back, back.Add(afterReturn))
		r.OverdueS = measure.Round(overdue.Seconds(), 3)
		r.describeLateness(late)
	}
	// Nothing can arrive before the first message is due.
	if first := start.Add(m.load.shortest); first.After(killed) {
		killed = first
	}
	r.GapS = measure.Round(m.tracker.outcome().longestGap(killed).Seconds(), 3)
	return r, ctx.Err()
}

// target returns the server to kill; nil: the worker.
func (m *measurement) target(ctx context.Context, victim string) (*servers.Server, error) {
	switch victim {
	case victimWorker, "":
		return nil, nil
	case victimServer:
		return m.servers[0], nil
	}
	return m.way.(withLeader).leader(ctx, victim, m.servers)
}

// crash kills the server, or the worker if there is none. It starts again what has no replicas.
func (m *measurement) crash(ctx context.Context, s *servers.Server, victim string) error {
	if s != nil {
		m.killed.server += cpuOf(s.PIDs()...)
		if err := s.Kill(); err != nil || victim != victimServer {
			return err
		}
		return s.Start(ctx)
	}
	worker, cpu := m.worker, &m.killed.worker
	if w, ok := m.way.(withProgram); ok {
		worker, cpu = w.process(), &m.killed.server
	}
	*cpu += cpuOf(worker.PID())
	worker.Kill()
	return worker.Start()
}

// afterReturn is how long after the return of the power all servers and clients of W7 must work as before.
const afterReturn = 5 * time.Second

// cutPower cuts the power of all servers at once, and starts them on what has survived. It returns how many messages were acknowledged
// before.
func (m *measurement) cutPower(ctx context.Context) (acknowledged int, err error) {
	var pids []int
	for _, s := range m.servers {
		pids = append(pids, s.PIDs()...) // their files cannot be read after the cut
	}
	m.killed.server += cpuOf(pids...)
	var errs []error
	for _, pid := range process.Tree(pids...) { // none may acknowledge what its disk refuses
		_ = syscall.Kill(pid, syscall.SIGSTOP) // a child may have ended
	}
	for _, d := range m.disks {
		errs = append(errs, d.Cut())
	}
	acknowledged = m.tracker.acknowledged()
	for _, pid := range pids {
		errs = append(errs, process.KillTree(ctx, pid))
	}
	for _, d := range m.disks {
		errs = append(errs, d.Return())
	}
	if err := errors.Join(errs...); err != nil {
		return acknowledged, err
	}
	err = servers.StartAll(ctx, m.servers...)
	for _, d := range m.disks { // the scripts sync no file with a process id
		err = errors.Join(err, d.Sync())
	}
	return acknowledged, err
}

const (
	victimServer = "server"
	victimWorker = "worker"
	// victimLeader leads messages of the way. It may not be the active controller of Kafka.
	victimLeader = "leader"
	// victimController leads messages, and is the active controller of Kafka.
	victimController = "controller"
)

// victims returns what W4 can kill of a way.
func (s spec) victims() []string {
	if s.cluster != nil && s.name == "orderclose-3" {
		return []string{victimLeader, victimController}
	}
	if s.cluster != nil {
		return []string{victimLeader}
	}
	return []string{victimServer, victimWorker}
}
