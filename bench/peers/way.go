package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// way is one way to deliver a message later. The driver process opens it and publishes; a worker
// process, which has a way of its own, consumes.
type way interface {
	// open connects and creates empty queues, topics or tables. It also starts processes that
	// belong to the way.
	open(ctx context.Context) error
	// publish returns when all messages are accepted, as durably as the way does by default. An
	// error means that some of them may be accepted all the same. Several goroutines call it.
	publish(ctx context.Context, messages []message) error
	// consume receives messages until ctx ends. It connects by itself, also again.
	consume(ctx context.Context, to *receipts) error
	// settings names versions and what was set, for the report.
	settings(ctx context.Context) map[string]string
	// close stops what open has started.
	close()
}

// withProgram is a way that has a process of its own between server and consumer, which counts as
// a part of the server.
type withProgram interface{ process() *process.Process }

// withDatabase is a way whose delays are in the shop's main database.
type withDatabase interface {
	// queries returns how many statements the database has run so far.
	queries(ctx context.Context) (int64, error)
}

// withLeader is a way on three servers. leader returns the one that W4 kills.
type withLeader interface {
	leader(ctx context.Context, victim string, all []*servers.Server) (*servers.Server, error)
}

// run is one measurement, as the processes of a way know it.
type run struct {
	Way        string
	ID         string
	Workload   string
	Servers    map[string]string // addresses, host:port, by kind; with commas between several
	Dir        string            // an empty folder
	Program    string            // the program orderclose
	Publishers int
	SameDelay  time.Duration // of all messages; 0 if delays differ
}

// server is a kind of server, with the arguments of its script.
type server struct {
	kind      string
	arguments []string
}

// spec describes a way.
type spec struct {
	name, title string
	servers     []server // that it needs
	// cluster, if set, starts three servers of that kind instead, and what belongs to them. Those that were
	// created must be stopped also after an error.
	cluster func(ctx context.Context, dir string) ([]*servers.Server, error)
	lead    time.Duration // of W2: enough to publish everything; 0: defaultLead
	// interval is the longest time between two looks for due messages; 0: none.
	interval time.Duration
	// cannot says why a workload is left out.
	cannot map[string]string
	make   func(run) way
}

// defaultLead is the time from the first message of W2 to the instant at which all are due.
const defaultLead = 10 * time.Second

// notOrders is why ways without the shop's database are not in W5.
const notOrders = "it delivers messages and does not close orders; its worker would run the same transaction"

// onPostgres is the way with its orders in PostgreSQL.
const onPostgres = "orderclose-postgres"

// bySweeps is the way without relay and closer: a sweep each second. With unlimited its two workers have no limit.
const (
	bySweeps  = "orderclose-sweeper"
	unlimited = "-unlimited"
)

// byRiver is the way with a job of River for each order, which are closed in batches.
const byRiver = "river-batches"

// onlyRelay is why the other roles of orderclose are in W5 and W6 only.
const onlyRelay = "the messages have no orders that its closer could close; W5 has them"

// onlyOrders is why ways that close orders are in W5 only.
const onlyOrders = "the way that delivers messages with the same servers is there"

// neverSyncs and alwaysSyncs end the names of ways with sync: never and sync: always in topics.yaml.
const neverSyncs, alwaysSyncs = "-never", "-always"

// onlyPower is why ways whose settings matter when the power is cut are in W7 only.
const onlyPower = onlyWaits

// cutToo are the ways whose power W7 cuts, beside those that are in W7 only.
var cutToo = []string{"orderclose" + alwaysSyncs, "orderclose-all", "rabbitmq", "rabbitmq-quorum", "rabbitmq-delayed", "redis", "poll-1s", "river", "rocketmq",
	"nats"}

// onlyCrash is why ways on three servers are in W4, and some of them in W1, only.
const onlyCrash = "the way with one server is there; three of them would share the cores"

// onlyWaits is why the way with sync: always is where records wait or a loss of power takes them only.
const onlyWaits = "the way with the default settings is there"

func specs() []spec {
	redis := func(arguments ...string) []server {
		return []server{{kind: "redis", arguments: slices.Concat(redisDurable, arguments)}}
	}
	mariadb := []server{{kind: "mariadb"}}
	all := []spec{
		{name: "orderclose", title: "orderclose, with buckets that fit the delays", servers: []server{{kind: "kafka"}}, make: newOrderclose(rolesRelay)},
		{name: "orderclose" + alwaysSyncs, title: "orderclose, sync: always, as without a database that has the orders", servers: []server{{kind: "kafka"}},
			make:   newOrderclose(rolesRelay),
			cannot: map[string]string{"w4": onlyWaits, "w5": onlyWaits, "w6": onlyWaits}},
		{name: "orderclose-all", title: "orderclose, all its roles: also closer, outbox and sweeps",
			servers: []server{{kind: "kafka"}, {kind: "mariadb"}, {kind: "redis"}}, make: newOrderclose(rolesAll),
			cannot: map[string]string{"w1": onlyRelay, "w2": onlyRelay, "w3": onlyRelay, "w4": onlyRelay, "w5": "orderclose runs all its roles there"}},
		{name: onPostgres, title: "orderclose on PostgreSQL", servers: []server{{kind: "kafka"}, {kind: "postgresql"}}, make: newOrderclose(rolesAll),
			cannot: map[string]string{"w1": onlyRelay, "w2": onlyRelay, "w3": onlyRelay, "w4": onlyRelay, "w6": "orderclose-all waits there"}},
		{name: bySweeps, title: "orderclose run sweeper each second, and the outbox", servers: []server{{kind: "kafka"}, {kind: "mariadb"}},
			make:   newOrderclose(rolesAll),
			cannot: map[string]string{"w1": onlyRelay, "w2": onlyRelay, "w3": onlyRelay, "w4": onlyRelay, "w6": "docs/sweeper.md has its statements"}},
		{name: bySweeps + unlimited, title: "orderclose run sweeper each second, its two workers without a limit (compensator.rate)",
			servers: []server{{kind: "kafka"}, {kind: "mariadb"}}, make: newOrderclose(rolesAll), cannot: except("w5", onlyOrders)},
		{name: "rabbitmq", title: "RabbitMQ, TTL and dead-letter exchange, one queue", lead: 15 * time.Second, servers: []server{{kind: "rabbitmq"}},
			make: newRabbitMQ},
		{name: "rabbitmq-queues", title: "RabbitMQ, TTL and dead-letter exchange, a queue for each delay",
			lead: 15 * time.Second, servers: []server{{kind: "rabbitmq"}}, make: newRabbitMQ},
		{name: "rabbitmq-quorum", title: "RabbitMQ, TTL and dead-letter exchange, one quorum queue", lead: 15 * time.Second,
			servers: []server{{kind: "rabbitmq"}}, make: newRabbitMQ},
		{name: "rabbitmq-delayed", title: "RabbitMQ, delayed retries of a quorum queue: the worker returns each message once, with its due time",
			lead: 30 * time.Second, servers: []server{{kind: "rabbitmq"}}, make: newRabbitMQ},
		{name: "redis", title: "Redis sorted set, polled every 100 ms", servers: redis(), make: newRedisSet(100 * time.Millisecond)},
		{name: "redis-1s", title: "Redis sorted set, polled every second", servers: redis(), make: newRedisSet(time.Second)},
		{name: "redis-keys", title: "Redis key expiry", servers: redis("--notify-keyspace-events", "Ex"), make: newRedisKeys},
	}
	for _, p := range []struct {
		name, title string
		every       time.Duration
	}{
		{"poll-1s", "database, polled every second", time.Second},
		{"poll-3s", "database, polled every 3 s", 3 * time.Second},
		{"poll-5s", "database, polled every 5 s", 5 * time.Second},
		{"poll-30s", "database, polled every 30 s", 30 * time.Second},
		{"cron", "database, a cron job each minute", time.Minute},
	} {
		all = append(all, spec{name: p.name, title: p.title, servers: mariadb, interval: p.every, make: newPolling(p.every, p.name == "cron")})
	}
	all = append(all,
		spec{name: "timers", title: "Go timers in the process", make: newTimers},
		spec{name: "asynq", title: "asynq", lead: 20 * time.Second, servers: redis(), make: newAsynq},
		spec{name: "river", title: "River", servers: []server{{kind: "postgresql"}}, make: newRiver},
		spec{name: byRiver, title: "River, its jobs closed in batches", servers: []server{{kind: "kafka"}, {kind: "postgresql"}}, make: newOrderclose(rolesAll),
			cannot: except("w5", onlyOrders)},
		spec{name: "rocketmq", title: "RocketMQ, by timer", lead: 45 * time.Second, servers: []server{{kind: "rocketmq"}}, make: newRocketMQ},
		spec{name: "rocketmq-rocksdb", title: "RocketMQ, by timer in RocksDB", lead: 45 * time.Second,
			servers: []server{{"rocketmq", []string{"timerRocksDBEnable=true"}}}, make: newRocketMQ},
		spec{name: "rocketmq-levels", title: "RocketMQ, by its 18 levels", lead: 45 * time.Second, servers: []server{{kind: "rocketmq"}}, make: newRocketMQ,
			cannot: map[string]string{"w2": "a message has one of 18 delays, so messages that are sent one after the other are not due at one instant"}},
		spec{name: "nats", title: "NATS JetStream, message schedules", servers: []server{{kind: "nats"}}, make: newNATS},
	)
	for _, s := range []spec{
		{name: "orderclose-3", title: "orderclose on three brokers", servers: []server{{kind: "kafka"}}, cluster: threeBrokers, make: newOrderclose(rolesRelay)},
		{name: "rabbitmq-3", title: "RabbitMQ, TTL and dead-letter exchange, quorum queues on three nodes",
			servers: []server{{kind: "rabbitmq"}}, cluster: threeRabbits, make: newRabbitMQ},
		{name: "nats-3", title: "NATS JetStream, message schedules, three replicas", servers: []server{{kind: "nats"}}, cluster: threeNATS, make: newNATS},
		{name: "redis-3", title: "Redis sorted set, polled every 100 ms, two replicas and three Sentinels",
			servers: redis(), cluster: redisSentinel, make: newRedisSet(100 * time.Millisecond)},
	} {
		s.cannot = except("w4", onlyCrash)
		if s.name == "orderclose-3" || s.name == "rabbitmq-3" {
			delete(s.cannot, "w1")
		}
		all = append(all, s)
	}
	for i := range all {
		if all[i].cannot == nil {
			all[i].cannot = map[string]string{}
		}
		if !slices.Contains(cutToo, all[i].name) {
			all[i].cannot["w7"] = "a way with the same servers is there, or it has none"
		}
	}
	natsAlways, err := filepath.Abs("nats-always.conf")
	if err != nil {
		panic(err) // without a working folder no server starts
	}
	for _, s := range []spec{
		{name: "orderclose" + neverSyncs, title: "orderclose, sync: never", servers: []server{{kind: "kafka"}}, make: newOrderclose(rolesRelay)},
		{name: "orderclose-all" + neverSyncs, title: "orderclose, all its roles, sync: never",
			servers: []server{{kind: "kafka"}, {kind: "mariadb"}, {kind: "redis"}}, make: newOrderclose(rolesAll)},
		{name: "redis-always", title: "Redis sorted set, polled every 100 ms, appendfsync always", servers: redis("--appendfsync", "always"),
			make: newRedisSet(100 * time.Millisecond)},
		{name: "rocketmq-sync", title: "RocketMQ, by timer, SYNC_FLUSH", servers: []server{{"rocketmq", []string{"flushDiskType=SYNC_FLUSH"}}}, make: newRocketMQ},
		{name: "nats-always", title: "NATS JetStream, message schedules, sync_interval always",
			servers: []server{{"nats", []string{"--config", natsAlways}}}, make: newNATS},
	} {
		s.cannot = except("w7", onlyPower)
		all = append(all, s)
	}
	for i := range all {
		if all[i].lead == 0 {
			all[i].lead = defaultLead
		}
		if all[i].interval == 0 && !isOwn(all[i].name) && all[i].name != byRiver {
			all[i].cannot["w5"] = notOrders
		}
	}
	return all
}

// except returns a reason for each workload but one.
func except(workload, why string) map[string]string {
	reasons := map[string]string{}
	for _, w := range allWorkloads {
		if w != workload {
			reasons[w] = why
		}
	}
	return reasons
}

// specsOf returns the named ways, or all if names is empty.
func specsOf(names string) ([]spec, error) {
	all := specs()
	var chosen []spec
	for _, name := range strings.Fields(names) {
		i := slices.IndexFunc(all, func(s spec) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("PEERS names %q: write some of %s", name, strings.Join(namesOf(all), " "))
		}
		chosen = append(chosen, all[i])
	}
	if chosen == nil {
		return all, nil
	}
	return chosen, nil
}

func namesOf(specs []spec) (names []string) {
	for _, s := range specs {
		names = append(names, s.name)
	}
	return names
}
