package realtest

import (
	"fmt"
	"regexp"
	"syscall"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// pipelineIncidents are those in which parts, topics or records are missing or wrong.
var pipelineIncidents = []incident{
	{
		name:   "no relay",
		alerts: []string{"OrdercloseRoleMissing/relay", "OrdercloseRecordsOverdue/left behind"},
		play: func(g *game) {
			g.begin("relay", "closer", "compensator")
			g.kill("relay")
			g.park(g.cfg.Buckets[2], 3, time.Now().Add(-2*time.Minute))
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.act("orderclose run relay", g.alerts...)
			g.resolves(g.alerts...)
		},
	},
	{
		name:   "no closer",
		alerts: []string{"OrdercloseRoleMissing/closer", "OrdercloseUnwatched/dead letters"},
		play: func(g *game) {
			g.begin("relay", "closer")
			g.kill("closer")
			g.place("waiting", 5, time.Second)
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.act("orderclose run closer", g.alerts...)
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name:   "no compensator",
		alerts: []string{"OrdercloseRoleMissing/compensator"},
		play: func(g *game) {
			g.begin("relay", "closer", "compensator")
			g.kill("compensator")
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.act("orderclose run compensator", g.alerts...)
			g.resolves(g.alerts...)
		},
	},
	{name: "a frozen process", alerts: []string{"OrdercloseProcessDoesNotAnswer"}, play: (*game).frozenCloser},
	{
		name:   "a pause",
		alerts: []string{"OrderclosePaused"},
		play: func(g *game) {
			g.begin("relay", "closer", "compensator")
			g.act(`orderclose pause --for 30m --reason INC-1234`)
			g.place("paused", 5, time.Second)
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.act("orderclose resume", g.alerts...)
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name:   "no dispatcher",
		alerts: []string{"OrdercloseRoleMissing/outbox"},
		play: func(g *game) {
			g.begin("closer", "outbox")
			g.kill("outbox")
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.act("orderclose run outbox", g.alerts...)
			g.resolves(g.alerts...)
		},
	},
	{
		name:   "dead letters",
		alerts: []string{"OrdercloseDeadLettersOpen", "OrdercloseDeadLettersOpen/many"},
		play: func(g *game) {
			g.watch()
			g.begin("relay", "closer")
			broken := make([]wire.Message, 1100)
			for i := range broken {
				broken[i] = wire.Message{Key: []byte("broken"), Value: []byte("{")}
			}
			must.Get(g.kafka.Append(g.t.Context(), g.cfg.Topics.Close, 0, broken))(g.t)
			unknown := g.unknownOrders(3)
			g.told(health.LettersOpen)
			g.fires(g.alerts...)
			g.look(g.alerts...)
			closed := unknown[0]
			closed.ID = "broken"                        // so that its dead letters end with it
			for _, o := range append(unknown, closed) { // the checkout commits them after all
				must.Do(g.t, g.shop.Orders.CreateOrder(g.t.Context(), o, nil))
			}
			g.act("orderclose compensate", g.alerts...)
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name: "a recreated topic",
		play: func(g *game) {
			g.watch()
			g.begin("relay", "closer", "compensator", "outbox")
			g.firstStart()
			bucket := g.cfg.Buckets[2].Topic
			g.place("waiting", 12, time.Minute) // they wait until the topic is gone
			g.recreate(bucket)                  // whether the relay has read them or not
			g.fires("OrdercloseLogLostRecords")
			g.repaired()
			g.first("the-log-has-lost-records")
			g.allClosed()
			g.until("status finds nothing urgent", func() bool { _, code := g.do("orderclose status"); return code == 0 })
		},
	},
	{
		name:   "topics.yaml with an error",
		alerts: []string{"OrdercloseConfigNotReloaded"},
		play: func(g *game) {
			g.begin("relay")
			g.rewrite("buckets: [1s", "buckets: [soon")
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.rewrite("buckets: [soon", "buckets: [1s")
			g.resolves(g.alerts...)
		},
	},
	{
		name:   "a delay is cut",
		alerts: []string{"OrdercloseDelayFell", "OrdercloseDelayFell/just now"},
		play: func(g *game) {
			g.begin("compensator")
			g.rewrite("virtual: 5s", "virtual: 1s")
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.rewrite("virtual: 1s", "virtual: 5s")
			g.resolves(g.alerts...)
		},
	},
	{
		name:    "lost records",
		lasting: []string{"OrdercloseLogLostRecords", "OrdercloseOrdersMissed"},
		play: func(g *game) {
			g.begin("relay", "closer", "compensator")
			g.firstStart()
			g.signal("relay", syscall.SIGTERM)
			g.place("lost", 12, 4*time.Second)
			for _, b := range g.cfg.Buckets {
				g.deleteRecords(b.Topic)
			}
			g.launch("relay", "orderclose run relay")
			g.fires(g.lasting...)
			g.look(g.lasting...)
			g.act("orderclose topics check", "OrdercloseLogLostRecords")
			g.act("orderclose topics apply", "OrdercloseLogLostRecords")
			g.act("orderclose compensate", "OrdercloseLogLostRecords")
			g.allClosed()
			for _, alert := range g.lasting {
				g.verify(alert)
			}
		},
	},
}

// frozenCloser freezes one of two closers, and lets it go on.
func (g *game) frozenCloser() {
	g.t.Helper()
	g.watch()
	g.launch("frozen", "orderclose run closer")
	g.begin("relay", "closer")
	g.ready("frozen")
	members := func(want string) {
		line := regexp.MustCompile("(?m)^" + g.cfg.Topics.Close + " .* " + want + ", Stable$")
		g.has(g.alerts[0], "Meaning", "sh", "orderclose status")
		g.until("status shows "+want, func() bool {
			out, _ := g.do("orderclose status")
			return line.MatchString(out)
		})
	}
	members("2 members")
	g.place("waiting", 20, 5*time.Second) // some wait in partitions of the process
	g.send("frozen", syscall.SIGSTOP)
	g.fires(g.alerts...)
	g.look(g.alerts...)
	members("1 member")
	g.send("frozen", syscall.SIGCONT)
	g.resolves(g.alerts...)
	members("2 members")
}

// unknownOrders hands n orders to the closer for their last attempt that the database does not have.
func (g *game) unknownOrders(n int) (orders []orderclose.Order) {
	g.t.Helper()
	due := time.Now().Truncate(time.Millisecond)
	for i := range n {
		o := orderclose.Order{ID: fmt.Sprint("unknown-", i), Category: "virtual", CreatedAt: due.Add(-time.Minute), Due: due}
		m, err := wire.Record{Order: o, Release: due, Attempt: 3, Cause: "not_found"}.Encode()
		if err == nil {
			_, err = g.kafka.Append(g.t.Context(), g.cfg.Topics.Close, kafka.PartitionOf(m.Key, g.cfg.Partitions), []wire.Message{m})
		}
		must.Do(g.t, err)
		orders = append(orders, o)
	}
	return orders
}
