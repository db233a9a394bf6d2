package simulation

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/pipeline"
)

// sweepWithoutKafka starts a compensator as a process that cannot reach Kafka.
func (r *rig) sweepWithoutKafka() {
	r.t.Helper()
	c := r.connect("alone")
	away := must.Get(kafka.New(kafka.Options{Brokers: r.world.Brokers(), Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: errNetworkDown}
	}}))(r.t)
	a := must.Get(pipeline.New(pipeline.Options{
		Config: r.cfg, Connections: clients.Clients{Kafka: away, Store: c.Store, Redis: c.Redis}, Logger: r.logger, Services: r.services, Missed: r.misses.add,
		Secrets: pipeline.Secrets{HTTP: serviceSecrets},
	}))(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, pipeline.Compensator) }()
	r.stops["alone"] = func() {
		cancel()
		expect.NoError(r.t, <-done)
		away.Close()
		c.Close()
	}
}

// TestSimulation_PausesWithoutKafka: a service closes orders, so the pauses are in the control topic. A
// compensator that is started while Kafka is away obeys the pause that another one has read. If none has
// read any, it sweeps after the configured wait.
func TestSimulation_PausesWithoutKafka(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	for name, read := range map[string]bool{"a compensator has read the pause": true, "nobody has read it": false} {
		t.Run(name, func(t *testing.T) {
			cfg := httpConfig()
			cfg.Compensator.Period = time.Minute
			simulate(t, cfg, func(ctx context.Context, r *rig) {
				r.disturbed = true
				_, stop := r.serve(httpclose.Handler(serviceSecrets, r.db.CloseOrders))
				defer stop()
				must.Get(ops.NewControl(r.kafka, cfg.Topics.Control).Pause(ctx, []orderclose.Path{orderclose.PathSweep}, "", time.Hour, "a trial", false))(t)
				paused := time.Now()
				if read {
					r.start(pipeline.Compensator)
					time.Sleep(10 * time.Second)
					r.stop(pipeline.Compensator)
				}
				order := r.order("forgotten", "virtual", false)
				time.Sleep(time.Until(order.Due) + 2*time.Minute)
				r.sweepWithoutKafka()
				began := time.Now()
				for r.status(order.ID) == store.Unpaid && time.Since(began) < 3*time.Hour {
					time.Sleep(10 * time.Second)
				}
				waited := time.Since(began)
				expect.That(t, !read || time.Since(paused) >= time.Hour, "closed %v after the pause began, which lasts an hour", time.Since(paused))
				if read && time.Since(paused) > time.Hour+5*time.Minute || !read && (waited < 10*time.Minute || waited > 15*time.Minute) {
					t.Errorf("closed %v after the compensator began", waited)
				}
			})
		})
	}
}
