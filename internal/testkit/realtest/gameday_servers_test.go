package realtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// serverIncidents are those in which Kafka, a database or Redis fails, or its topics or rows are wrong.
var serverIncidents = []incident{
	{
		name:   "the database is read-only",
		alerts: []string{"OrdercloseDatabaseTakesNoWrites"},
		own:    ownDatabase,
		play: func(g *game) {
			g.limitedUser()
			g.watch()
			g.begin("relay", "closer", "compensator")
			g.exec("SET GLOBAL read_only = 1")
			g.place("waiting", 5, time.Second)
			g.told(health.WritesRefused)
			g.since("writes refused")
			g.fires(g.alerts...)
			g.look(g.alerts...)
			const fix = "SET GLOBAL read_only = 0"
			g.has(g.alerts[0], "Act", "sql", fix)
			g.exec(fix)
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name:   "the database is unreachable",
		alerts: []string{"OrdercloseNothingCloses"},
		play: func(g *game) {
			proxy := g.databaseProxy()
			g.begin("relay", "closer", "compensator")
			proxy.Disconnect()
			flow := g.flow("waiting", 1)
			g.fires(g.alerts...)
			g.look(g.alerts...)
			proxy.Heal() // somebody repairs it
			g.act("orderclose compensate", g.alerts...)
			g.resolves(g.alerts...)
			flow()
			g.allClosed()
		},
	},
	{
		name:   "the database is slow",
		alerts: []string{"OrdercloseCloseLate", "OrdercloseBacklogHeldBack"},
		play: func(g *game) {
			proxy := g.databaseProxy()
			g.begin("relay", "closer")
			g.place("first", 20, time.Second)
			g.allClosed()
			proxy.Set(testkit.ToServer, testkit.ProxyRules{Rate: 2000}) // a transaction takes the longer, the more orders it has
			flow := g.flow("late", 10)
			g.fires(g.alerts...)
			g.look(g.alerts...)
			proxy.Heal() // somebody repairs it
			flow()
			g.allClosed()
			for i := 0; !g.calm("OrdercloseCloseLate"); i++ { // orders that close on time lower the average
				g.place(fmt.Sprint("later-", i), 50, 2*time.Second)
			}
			g.resolves(g.alerts...)
		},
	},
	{
		name:   "a stock row is wrong",
		alerts: []string{"OrdercloseCloseFails"},
		play: func(g *game) {
			g.begin("relay", "closer")
			g.place("good", 20, time.Second)
			g.allClosed()
			g.place("bad", 3*skus, 15*time.Second) // none is closed before the UPDATE
			g.exec("UPDATE stock SET reserved = 0 WHERE sku_id = ?", "sku-000")
			g.fires(g.alerts...)
			g.words = append(g.words, "ORDER-ID", "bad-0")
			g.look(g.alerts...)
			g.exec("UPDATE stock SET reserved = 3 WHERE sku_id = ?", "sku-000") // as the query says
			for i := 0; !g.calm(g.alerts...); i++ {                             // other orders close
				g.place(fmt.Sprint("more-", i), 100, 2*time.Second)
			}
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name:   "Redis",
		alerts: []string{"OrdercloseLockUnavailable/unavailable", "OrdercloseLockUnavailable/stuck"},
		play: func(g *game) {
			direct := g.servers.RedisURL
			proxy := g.redisProxy()
			g.begin("compensator")
			proxy.Disconnect()
			g.fires(g.alerts[0])
			g.look(g.alerts[0])
			proxy.Heal() // somebody starts it again
			g.resolves(g.alerts[0])

			g.servers.RedisURL = direct
			key := g.lockKey()
			must.Do(g.t, g.redisClient().Set(g.t.Context(), key, "by hand", 0).Err())
			g.fires(g.alerts[1])
			g.look(g.alerts[1])
			must.Do(g.t, g.redisClient().Del(g.t.Context(), key).Err()) // as the error in the log says
			g.resolves(g.alerts[1])
		},
	},
	{
		name:   "Redis takes no writes",
		alerts: []string{"OrdercloseLockUnavailable"},
		own:    ownRedis,
		play: func(g *game) {
			g.watch()
			g.begin("relay", "closer", "compensator")
			limit := func(bytes string) { must.Do(g.t, g.redisClient().ConfigSet(g.t.Context(), "maxmemory", bytes).Err()) }
			limit("1")
			g.kill("compensator") // who holds the lock would keep it: to extend it takes no memory
			g.launch("compensator", "orderclose run compensator")
			g.told(health.LockRefused)
			g.since("lock refused")
			g.fires(g.alerts...)
			g.look(g.alerts...)
			limit("0") // somebody gives it memory
			g.resolves(g.alerts...)
		},
	},
	{
		name:   "too much for the compensator",
		alerts: []string{"OrdercloseCompensatorLate"},
		play: func(g *game) {
			const rate = "  rate: 1\n"
			g.rewrite("  period: 5s\n", "  period: 5s\n"+rate)
			g.begin("compensator") // before the orders: it waits until no alert of the incident fires
			g.missed(200)
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.rewrite(rate, "  rate: 5000\n")
			g.kill("compensator")
			g.launch("compensator", "orderclose run compensator")
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name:   "deleted topics",
		alerts: []string{"OrdercloseTopicDrift", "OrdercloseUnwatched/topics", "OrdercloseOutboxLate/schedules", "OrdercloseOutboxLate/events"},
		play: func(g *game) {
			g.begin("relay", "closer", "compensator", "outbox")
			g.useOutbox()
			g.place("first", 5, time.Second)
			g.allClosed()
			var topics []string
			for _, b := range g.cfg.Buckets {
				topics = append(topics, b.Topic)
			}
			must.Do(g.t, drop.Topics(g.t.Context(), g.kafka, append(topics, g.cfg.Topics.Events)...))
			for _, topic := range append(topics, g.cfg.Topics.Events) { // until then a broker accepts records
				g.until(topic+" is gone", func() bool {
					there, err := g.kafka.Exists(g.t.Context(), topic)
					return err == nil && !there
				})
			}
			g.schedule("scheduled", 5, time.Hour)
			g.missed(3) // the sweep closes them, and writes events
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.act("orderclose topics apply", g.alerts...)
			g.resolves(g.alerts...)
		},
	},
	{
		name:   "the close topic is gone",
		alerts: []string{"OrdercloseRecordsOverdue"},
		play: func(g *game) {
			g.begin("relay", "closer")
			g.place("waiting", 20, 5*time.Second)
			must.Do(g.t, drop.Topics(g.t.Context(), g.kafka, g.cfg.Topics.Close))
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.act("orderclose topics apply", g.alerts...)
			g.resolves(g.alerts...)
			g.do("orderclose compensate") // records that were in the topic already are gone with it
			g.allClosed()
		},
	},
	{
		name:   "Kafka is down",
		alerts: []string{"OrdercloseRoleMissing/relay"},
		own:    ownKafka,
		play: func(g *game) {
			g.begin("relay", "closer") // a compensator could hold the orders at the moment of the command
			g.place("waiting", 5, 5*time.Second)
			g.own.kafka.stop()
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.act("orderclose compensate", g.alerts...) // needs no Kafka
			g.own.kafka.start()
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
	{
		name:   "an ACL is missing",
		alerts: []string{"OrdercloseCannotFetch"},
		own:    ownSecuredKafka,
		play: func(g *game) {
			g.begin("relay", "closer")
			g.own.read(false)
			g.place("waiting", 5, 5*time.Second)
			g.fires(g.alerts...)
			g.look(g.alerts...)
			g.own.read(true) // the row of docs/security.md that the log names
			g.resolves(g.alerts...)
			g.allClosed()
		},
	},
}

// ownDatabase starts a MariaDB.
func ownDatabase(t *testing.T, s *environ.Servers) ownServers {
	s.DSN = startDatabase(t, "mariadb").dsn()
	return ownServers{prefix: newPrefix()}
}

func ownRedis(t *testing.T, s *environ.Servers) ownServers {
	r := newServer(t, "redis")
	r.start()
	s.RedisURL = "redis://" + r.Addr() + "/0"
	return ownServers{prefix: newPrefix()}
}

// ownKafka starts a broker that keeps its data when it is stopped.
func ownKafka(t *testing.T, s *environ.Servers) ownServers {
	b := newServer(t, "kafka")
	b.Env = []string{smallBroker}
	b.startNative()
	s.Brokers = []string{b.Addr()}
	return ownServers{prefix: newPrefix(), kafka: b}
}

// ownSecuredKafka starts a broker on which the relay is a user of its own, with the ACLs of the document. All other parts may do everything.
func ownSecuredKafka(t *testing.T, s *environ.Servers) ownServers {
	const user = "relay"
	b := newBroker(t, user)
	env, admin := b.mutual("admin")
	everything := access{env, []string{b.mtls}, admin}
	own := ownServers{prefix: newPrefix(), secured: &secured{parts: map[string]access{
		"relay": b.by(kafka.Plain, user), "closer": everything, "producer": everything, "operator": everything,
	}}}
	rows := accessTable(t)
	var acls []kafkago.ACLEntry
	for _, row := range rows[user] {
		acls = append(acls, row.acl(t, user, own.prefix))
	}
	b.grant(acls)
	own.read = func(may bool) {
		read := row{user, "Topic", "delay_*", "Read"}.acl(t, user, own.prefix)
		if may {
			b.grant([]kafkago.ACLEntry{read})
			return
		}
		must.Get(b.admin.DeleteACLs(t.Context(), &kafkago.DeleteACLsRequest{Filters: []kafkago.DeleteACLsFilter{{
			ResourceTypeFilter: read.ResourceType, ResourceNameFilter: read.ResourceName, ResourcePatternTypeFilter: read.ResourcePatternType,
			PrincipalFilter: read.Principal, HostFilter: read.Host, Operation: read.Operation, PermissionType: read.PermissionType,
		}}}))(t)
	}
	s.Brokers, s.Kafka = []string{b.mtls}, admin
	return own
}

// limitedUser gives the processes that are started from here on a user who may not write to a read-only server.
func (g *game) limitedUser() {
	g.t.Helper()
	dsn := must.Get(mysql.ParseDSN(g.servers.DSN))(g.t)
	g.exec("CREATE USER pipeline@'%' IDENTIFIED BY ''")
	g.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON `" + dsn.DBName + "`.* TO pipeline@'%'")
	dsn.User = "pipeline"
	g.servers.DSN = dsn.FormatDSN()
}
