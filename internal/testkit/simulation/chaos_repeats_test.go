package simulation

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/pipeline"
)

func init() {
	kinds["replay"] = kind{weight: 3, draw: func(*drawing, *event) {}, play: func(w *chaosWorld, _ event) {
		w.admin(func(c *kafka.Cluster) error {
			if w.faulty.Err() != nil {
				return nil // give up: all faults have ended
			}
			return w.replayAll(w.faulty, c)
		})
	}}
	kinds["sweeps"] = kind{weight: 3, swept: true, draw: func(*drawing, *event) {}, play: func(w *chaosWorld, _ event) {
		w.sweepTwice(w.faulty) // errors are allowed while there are faults
	}}
}

// replayAll replays the whole close topic, as orderclose replay does.
func (w *chaosWorld) replayAll(ctx context.Context, c *kafka.Cluster) error {
	p := ops.Pipeline{Config: w.config(), Kafka: c}
	plan, err := p.PlanReplay(ctx, ops.ReplayRequest{From: w.began.Add(-2 * time.Hour), To: time.Now().Add(2 * time.Hour)}) // wider than the error of any clock
	if err == nil {
		w.replays.Add(1)
		_, err = ops.Replay(ctx, reads.Log{Cluster: c}, plan, ops.ReplayRate, nil)
	}
	return err
}

// sweepTwice sweeps with two processes at once, without a lock.
func (w *chaosWorld) sweepTwice(ctx context.Context) error {
	if w.plan.closesInGo() {
		return nil
	}
	var sweeps sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		sweeps.Go(func() { errs[i] = w.sweepOnce(ctx, fmt.Sprint("sweeper-", i)) })
	}
	sweeps.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepOnce runs one sweep, as orderclose compensate does.
func (w *chaosWorld) sweepOnce(ctx context.Context, name string) error {
	c, err := kafka.New(kafka.Options{Brokers: w.servers.Brokers(), ClientID: name, Dial: w.servers.Dial, Logger: w.logger})
	if err != nil {
		return err
	}
	defer c.Close()
	transport := transportBy(func(ctx context.Context, network, _ string) (net.Conn, error) { return w.service.dial(ctx, network) })
	defer transport.CloseIdleConnections()
	a, err := pipeline.New(pipeline.Options{
		Config: w.config(), Connections: clients.Clients{Kafka: c, Store: w.db}, Logger: w.logger, Registerer: prometheus.NewRegistry(),
		Services: transport, Secrets: pipeline.Secrets{HTTP: serviceSecrets, Payment: serviceSecrets},
	})
	if err != nil {
		return err
	}
	comp, err := a.Compensator()
	if err != nil {
		return err
	}
	_, err = comp.Sweep(ctx, false)
	return err
}

// repeat requires that, when nothing is left to do, a replay of the whole close topic and two sweeps at once change nothing.
func (w *chaosWorld) repeat(bound time.Time) {
	if !w.plan.has("replay", "sweeps") {
		return
	}
	before, err := checker.ReadState(w.ctx, w.servers.DB())
	if err != nil {
		w.violation("harness", "%v", err)
		return
	}
	if w.plan.has("sweeps") {
		if err := w.sweepTwice(w.ctx); err != nil {
			w.violation("broken", "a sweep fails after all faults have ended: %v", err)
		}
	}
	if w.plan.has("replay") {
		w.admin(func(c *kafka.Cluster) error {
			err := w.replayAll(w.ctx, c)
			if err != nil && time.Now().After(bound) {
				w.violation("broken", "the close topic cannot be replayed: %v", err)
				return nil
			}
			return err
		})
	}
	for bound := time.Now().Add(standsAtMost); len(w.standing()) > 0 && time.Now().Before(bound); {
		time.Sleep(time.Second)
	}
	after, err := checker.ReadState(w.ctx, w.servers.DB())
	if err != nil {
		w.violation("harness", "%v", err)
	} else if diff := before.Diff(after); len(diff) > 0 {
		w.violation("broken", "a replay or a sweep changes finished orders: %s", strings.Join(diff, "; "))
	}
}
