package simulation

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/pipeline"
)

// lostBound is how late an order may close whose record was lost, from its due time or the end of the fault.
const lostBound = 30 * time.Second

// beforeSweeps runs a simulation of all roles whose next regular sweep is a day away: only the keeper can close an order that the pipeline does not.
func beforeSweeps(t *testing.T, cfg *config.Config, test func(ctx context.Context, r *rig)) {
	t.Helper()
	cfg.Compensator.Period = 24 * time.Hour
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.startAll()
		time.Sleep(30 * time.Second)
		test(ctx, r)
	})
}

// TestSimulation_OrdersOfLostRecordsCloseWithinHalfAMinute: each way to lose records.
func TestSimulation_OrdersOfLostRecordsCloseWithinHalfAMinute(t *testing.T) {
	ring.NotShort(t)
	t.Parallel()
	relays := func(r *rig, lose func()) { r.without(lose, pipeline.Relay) }
	for name, c := range map[string]struct {
		lose    func(ctx context.Context, r *rig, topic string) // the records of orders 0 to 19, which are due in four minutes
		counted float64                                         // records that the relay counts as lost
	}{
		"a topic is deleted with its commits": {func(ctx context.Context, r *rig, topic string) {
			relays(r, func() { r.wipe(ctx, topic) })
		}, 0},
		"a topic is recreated below its commits": {func(ctx context.Context, r *rig, topic string) {
			relays(r, func() {
				r.wipe(ctx, topic)
				r.commit(ctx, r.cfg.RelayGroup(r.cfg.Buckets[2]), topic, 5)
			})
		}, 1}, // of a log that nobody had read, it is only known that there was one
		"records are deleted": {func(ctx context.Context, r *rig, topic string) {
			relays(r, func() { r.deleteRecords(ctx, topic) })
		}, 20},
		"retention is too short, and the relay runs": {func(ctx context.Context, r *rig, topic string) { r.deleteRecords(ctx, topic) }, 0},
		"offsets are reset to the end": {func(ctx context.Context, r *rig, topic string) {
			relays(r, func() { r.commit(ctx, r.cfg.RelayGroup(r.cfg.Buckets[2]), topic, r.inTopic(topic)) })
		}, 0},
		"all of Kafka": {func(ctx context.Context, r *rig, _ string) {
			r.without(func() { r.wipe(ctx, scenario.TopicNames(r.cfg)...) }, pipeline.Relay, pipeline.Closer)
		}, 0},
		"all of Kafka, and the compensator starts later": {func(ctx context.Context, r *rig, _ string) {
			r.without(func() { r.wipe(ctx, scenario.TopicNames(r.cfg)...) }, pipeline.Relay, pipeline.Closer, pipeline.Compensator)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Partitions = 1
			beforeSweeps(t, cfg, func(ctx context.Context, r *rig) {
				for i := range 20 {
					r.order(fmt.Sprint("o", i), "virtual", true)
				}
				time.Sleep(time.Minute)
				c.lose(ctx, r, cfg.Buckets[2].Topic)
				if c.counted > 0 {
					time.Sleep(10 * time.Second)
					expect.Equal(t, testkit.Metrics{Registry: r.registry}.Value("retention_lost_records_total"), c.counted, "records that the relay counts as lost")
				}
				after := r.order("after", "virtual", true)
				time.Sleep(time.Until(after.Due.Add(lostBound)))
				v := r.verdict(time.Now())
				lateness := v.Latest()
				expect.That(t, v.Closed() == 21 && v.Early == 0 && v.Inconsistent == 0, "closed %v, early %d, double %d; want all 21", v.ByPath, v.Early, v.Inconsistent)
				expect.AtMost(t, lateness, lostBound, "the lateness")
				t.Logf("%v late at most, closed %v", lateness, v.ByPath)
			})
		})
	}
}

// without stops roles, calls do, and starts them again. The relay starts last, so that r.registry is its own.
func (r *rig) without(do func(), roles ...pipeline.Role) {
	r.t.Helper()
	for _, role := range roles {
		r.stop(role)
	}
	do()
	for i := range roles {
		r.start(roles[len(roles)-1-i])
	}
}

// deleteRecords deletes all records of a topic of one partition, as retention does.
func (r *rig) deleteRecords(ctx context.Context, topic string) {
	r.t.Helper()
	must.Do(r.t, r.world.Broker.DeleteRecords(topic, 0, r.inTopic(topic)))
}

// sweepWithoutKafka starts a compensator as a process that cannot reach Kafka.
func (r *rig) sweepWithoutKafka() {
	r.t.Helper()
	away := must.Get(kafka.New(kafka.Options{Brokers: r.world.Brokers(), Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: errNetworkDown}
	}}))(r.t)
	r.t.Cleanup(away.Close)
	r.startAs("alone", pipeline.Compensator, func(o *pipeline.Options) { o.Connections.Kafka = away })
}

// programStore is a program's own store with the methods that a compensator needs, and no others.
type programStore struct{ db *store.Store }

func (s programStore) Now(ctx context.Context) (time.Time, error) { return s.db.Now(ctx) }

func (s programStore) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	return s.db.Overdue(ctx, cutoff, after, limit)
}

// CloseOrders obeys no pause.
func (s programStore) CloseOrders(ctx context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return s.db.CloseOrders(ctx, "", requests)
}

// TestSimulation_ALossThatNobodyCanNotice: a power cut takes the end of a log that was acked, and the offsets are used again. An order of
// the close topic is lost in the same way. The database, a service of the shop or a store of the program closes the orders, within half a
// minute of their due time or of the end of a pause.
func TestSimulation_ALossThatNobodyCanNotice(t *testing.T) {
	t.Parallel()
	const service, own, noRedis = "service", "own", "no Redis"
	for name, c := range map[string]struct {
		by       string // "": the database
		paused   bool   // until two minutes after the due time
		category string // of the pause
	}{
		"closed in the database":                         {},
		"closed by a service":                            {by: service},
		"closed by a store of the program":               {by: own},
		"closed without Redis":                           {by: noRedis},
		"everything was paused":                          {paused: true},
		"a category was paused":                          {paused: true, category: "virtual"},
		"everything was paused for a service":            {by: service, paused: true},
		"a category was paused for a service":            {by: service, paused: true, category: "virtual"},
		"everything was paused for a store of a program": {by: own, paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			if c.by == service {
				cfg = httpConfig()
			}
			cfg.Compensator.Period = 24 * time.Hour
			simulate(t, cfg, func(ctx context.Context, r *rig) {
				r.disturbed = true
				switch c.by {
				case service:
					_, stop := r.serve(httpclose.Handler(serviceSecrets, func(ctx context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) (
						[]orderclose.Outcome, error) {
						return r.db.CloseOrders(ctx, "", requests) // obeys no pause
					}))
					defer stop()
				case own:
					r.store = programStore{r.db}
				case noRedis:
					r.world.Redis.SetError("LOADING")
				}
				r.startAll()
				time.Sleep(30 * time.Second)
				var from time.Time
				for i := range 40 {
					from = r.order(fmt.Sprint("o", i), "virtual", i%2 == 0).Due // the record of each second one is gone
				}
				if c.paused {
					from = from.Add(2 * time.Minute)
					must.Get(r.db.Pause(ctx, c.category, time.Until(from), "a trial", false))(t)
					time.Sleep(time.Until(from) - time.Second)
					expect.Equal(t, r.status("o1"), store.Unpaid, "the status of a lost order during the pause")
				}
				time.Sleep(time.Until(from.Add(lostBound)))
				v := r.verdict(time.Now())
				expect.That(t, v.Closed() == 40 && v.Early == 0 && v.Inconsistent == 0, "closed %v, early %d, double %d; want all 40", v.ByPath, v.Early, v.Inconsistent)
			})
		})
	}
}

// TestSimulation_AKafkaThatDoesNotAnswerDelaysNoSweepOfOverdueOrders.
func TestSimulation_AKafkaThatDoesNotAnswerDelaysNoSweepOfOverdueOrders(t *testing.T) {
	cfg := testConfig()
	cfg.Compensator.Period = 24 * time.Hour
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.disturbed = true
		r.sweepWithoutKafka()
		o := r.order("o", "virtual", true)
		time.Sleep(time.Until(o.Due.Add(lostBound)))
		expect.Equal(t, r.status("o"), store.Closed, "the status of the order")
	})
}

// TestSimulation_ALossBesideABacklogIsFoundWithinHalfAMinute: the closer is stopped for ten minutes.
func TestSimulation_ALossBesideABacklogIsFoundWithinHalfAMinute(t *testing.T) {
	cfg := testConfig()
	beforeSweeps(t, cfg, func(ctx context.Context, r *rig) {
		for i := range 50 {
			r.order(fmt.Sprint("o", i), "virtual", true)
		}
		lost := r.order("lost", "virtual", false)
		r.stop(pipeline.Closer)
		time.Sleep(time.Until(lost.Due.Add(lostBound)))
		expect.Equal(t, r.status("lost"), store.Closed, "the status of the lost order")
	})
}

// TestSimulation_APauseStopsClosersAndSweeps: a pause of all orders stops all closing, and one of a category stops that of its orders only.
// Each second order has no record, so a sweep must close it.
func TestSimulation_APauseStopsClosersAndSweeps(t *testing.T) {
	for name, category := range map[string]string{"all": "", "a category": "virtual"} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Delays.ByCategory["book"] = cfg.Delays.ByCategory["virtual"]
			beforeSweeps(t, cfg, func(ctx context.Context, r *rig) {
				must.Get(r.db.Pause(ctx, category, 15*time.Minute, "a trial", false))(t)
				ended := time.Now().Add(15 * time.Minute)
				for i := range 40 {
					r.order(fmt.Sprint("o", i), []string{"virtual", "book"}[i/20], i%2 == 0)
				}
				time.Sleep(time.Until(ended) - time.Second)
				for i := range 40 {
					want := store.Unpaid
					if category != "" && i >= 20 {
						want = store.Closed
					}
					expect.Equal(t, r.status(fmt.Sprint("o", i)), want, "the status of order %d during the pause", i)
				}
				time.Sleep(time.Second + lostBound)
				if category != "" {
					time.Sleep(2 * time.Minute) // closers keep records of the category, and ask again
				}
				v := r.verdict(time.Now())
				expect.That(t, v.Closed() == 40 && v.Early == 0, "closed %v after the pause, want 40", v.ByPath)
			})
		})
	}
}

// commit commits an offset in the first partition for a group that has no members.
func (r *rig) commit(ctx context.Context, group, topic string, offset int64) {
	r.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, offset, -1)
	r.ask(func(c *kadm.Client) error { return c.CommitAllOffsets(ctx, group, offsets) })
}
