package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/measure"
)

// settle is the pause between the last accepted message of W6 and the time in which the way is
// watched.
const settle = 15 * time.Second

// restLimit is the longest wait for a worker that is behind.
const restLimit = 2 * time.Minute

// measureWaiting is W6: it publishes messages that are due much later, and watches what they cost.
func (m *measurement) measureWaiting(ctx context.Context) (result, error) {
	r := m.newResult()
	before := m.disk()
	start := time.Now()
	p := publisher{way: m.way, run: m.run.ID, tracker: m.tracker}
	limited, cancel := context.WithTimeout(ctx, m.load.publishLimit())
	p.all(limited, m.load, m.load.delays(), time.Time{})
	cancel()
	published := time.Now()
	sleep(ctx, min(settle, m.load.watch))
	m.awaitRest(ctx)
	database, counts := m.way.(withDatabase)
	var queries int64
	var err error
	if counts {
		if queries, err = database.queries(ctx); err != nil {
			return r, err
		}
	}
	mark := m.markCPU()
	sleep(ctx, m.load.watch)
	if err := m.ended(); err != nil {
		return r, err
	}
	m.charge(&r, mark)
	r.ServerIdle = measure.Round(100*r.ServerCPU/r.Seconds, 2)
	r.ClientIdle = measure.Round(100*(cpuOf(m.worker.PID())-mark.worker)/r.Seconds, 2)
	r.ClientMB = measure.Round(memoryOf(m.worker.PID()), 1) // without the memory of this process for its tracker
	if counts {
		after, err := database.queries(ctx)
		if err != nil {
			return r, err
		}
		// The second look is itself a query. A way without the database makes none.
		r.Queries = measure.Round(float64(max(0, after-queries-1))/r.Seconds*60, 1)
	}
	r.DiskMB = measure.Round(m.disk()-before, 1)
	if arrived := m.tracker.arrived.Load(); arrived > 0 {
		return r, fmt.Errorf("%d messages arrived long before they were due", arrived)
	}
	r.Refused = int(m.tracker.refused.Load())
	if p.refuse != nil {
		r.RefusedBy = p.refuse.Error()
	}
	r.AcceptedPS = measure.Round(float64(r.Messages-r.Refused)/published.Sub(start).Seconds(), 1)
	return r, ctx.Err()
}

// awaitRest waits up to restLimit until the worker has nothing to do. A worker that returns each message before it waits may be behind.
func (m *measurement) awaitRest(ctx context.Context) {
	used := cpuOf(m.worker.PID())
	for limit := time.Now().Add(restLimit); time.Now().Before(limit) && sleep(ctx, time.Second); {
		before := used
		if used = cpuOf(m.worker.PID()); used-before < 0.05 {
			return
		}
	}
}

// disk returns the MB on disk of all servers.
func (m *measurement) disk() (mb float64) {
	for _, s := range m.servers {
		mb += diskMB(s.Dir)
	}
	return mb
}
