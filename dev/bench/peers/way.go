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
	workloads   string   // that it is measured in
	servers     []server // that it needs
	make        func(run) way
	// cluster, if set, starts three servers of that kind instead, and what belongs to them. Those that were
	// created must be stopped also after an error.
	cluster func(ctx context.Context, dir string) ([]*servers.Server, error)
	lead    time.Duration // of W2: enough to publish everything; 0: defaultLead
	// interval is the longest time between two looks for due messages; 0: none.
	interval time.Duration
}

// does says whether the way is measured in a workload.
func (s spec) does(workload string) bool {
	return slices.Contains(strings.Fields(s.workloads), workload)
}

// defaultLead is the time from the first message of W2 to the instant at which all are due.
const defaultLead = 10 * time.Second

// onPostgres is the way with its orders in PostgreSQL.
const onPostgres = "orderclose-postgres"

// bySweeps is the way without relay and closer: a sweep each second. With unlimited its two workers have no limit.
const (
	bySweeps  = "orderclose-sweeper"
	unlimited = "-unlimited"
)

// byRiver is the way with a job of River for each order, which are closed in batches.
const byRiver = "river-batches"

// neverSyncs and alwaysSyncs end the names of ways with sync: never and sync: always in topics.yaml.
const neverSyncs, alwaysSyncs = "-never", "-always"

// Workloads of ways that deliver messages. W5 is of ways that close orders.
const (
	delivers  = "w1 w2 w3 w4 w6"
	durably   = delivers + " w7"
	onCrash   = "w4" // a way with one server is in the others; three of them would share the cores
	onOrders  = "w5"
	onlyPower = "w7" // the same with default settings is in the others
)

func specs() []spec {
	one := func(kind string, arguments ...string) []server { return []server{{kind, arguments}} }
	redis := func(arguments ...string) []server { return one("redis", slices.Concat(redisDurable, arguments)...) }
	kafka, rabbit, rocket, nats := one("kafka"), one("rabbitmq"), one("rocketmq"), one("nats")
	shop := []server{{kind: "kafka"}, {kind: "mariadb"}}
	withRedis := []server{{kind: "kafka"}, {kind: "mariadb"}, {kind: "redis"}}
	onRiver := []server{{kind: "kafka"}, {kind: "postgresql"}}
	relay, roles := newOrderclose(rolesRelay), newOrderclose(rolesAll)
	often := newRedisSet(100 * time.Millisecond)
	natsAlways, err := filepath.Abs("nats-always.conf")
	if err != nil {
		panic(err) // without a working folder no server starts
	}
	const ttl = "RabbitMQ, TTL and dead-letter exchange, "
	return []spec{
		{name: "orderclose", title: "orderclose, with buckets that fit the delays", workloads: delivers + " w5", servers: kafka, make: relay},
		{name: onDisk, title: "orderclose, sync: always, as without a database that has the orders", workloads: "w1 w2 w3 w7", servers: kafka, make: relay},
		{name: "orderclose-all", title: "orderclose, all its roles: also closer, outbox and sweeps", workloads: "w6 w7", servers: withRedis, make: roles},
		{name: onPostgres, title: "orderclose on PostgreSQL", workloads: onOrders, servers: onRiver, make: roles},
		{name: bySweeps, title: "orderclose run sweeper each second, and the outbox", workloads: onOrders, servers: shop, make: roles},
		{name: bySweeps + unlimited, title: "orderclose run sweeper each second, its two workers without a limit (compensator.rate)",
			workloads: onOrders, servers: shop, make: roles},
		{name: "rabbitmq", title: ttl + "one queue", workloads: durably, servers: rabbit, make: newRabbitMQ, lead: 15 * time.Second},
		{name: "rabbitmq-queues", title: ttl + "a queue for each delay", workloads: delivers, servers: rabbit, make: newRabbitMQ, lead: 15 * time.Second},
		{name: "rabbitmq-quorum", title: ttl + "one quorum queue", workloads: durably, servers: rabbit, make: newRabbitMQ, lead: 15 * time.Second},
		{name: "rabbitmq-delayed", title: "RabbitMQ, delayed retries of a quorum queue: the worker returns each message once, with its due time",
			workloads: durably, servers: rabbit, make: newRabbitMQ, lead: 30 * time.Second},
		{name: "redis", title: "Redis sorted set, polled every 100 ms", workloads: durably, servers: redis(), make: often},
		{name: "redis-1s", title: "Redis sorted set, polled every second", workloads: delivers, servers: redis(), make: newRedisSet(time.Second)},
		{name: "poll-1s", title: "database, polled every second", workloads: durably + " w5", servers: one("mariadb"), interval: time.Second,
			make: newPolling(time.Second)},
		{name: "poll-30s", title: "database, polled every 30 s", workloads: delivers + " w5", servers: one("mariadb"), interval: 30 * time.Second,
			make: newPolling(30 * time.Second)},
		{name: "asynq", title: "asynq", workloads: delivers, servers: redis(), make: newAsynq, lead: 20 * time.Second},
		{name: "river", title: "River", workloads: durably, servers: one("postgresql"), make: newRiver},
		{name: byRiver, title: "River, its jobs closed in batches", workloads: onOrders, servers: onRiver, make: roles},
		{name: "rocketmq", title: "RocketMQ, by timer", workloads: durably, servers: rocket, make: newRocketMQ, lead: 45 * time.Second},
		{name: "nats", title: "NATS JetStream, message schedules", workloads: durably, servers: nats, make: newNATS},
		{name: "orderclose-3", title: "orderclose on three brokers", workloads: "w1 " + onCrash, servers: kafka, cluster: threeBrokers, make: relay},
		{name: "rabbitmq-3", title: ttl + "quorum queues on three nodes", workloads: "w1 " + onCrash, servers: rabbit, cluster: threeRabbits, make: newRabbitMQ},
		{name: "nats-3", title: "NATS JetStream, message schedules, three replicas", workloads: onCrash, servers: nats, cluster: threeNATS, make: newNATS},
		{name: "redis-3", title: "Redis sorted set, polled every 100 ms, two replicas and three Sentinels",
			workloads: onCrash, servers: redis(), cluster: redisSentinel, make: often},
		{name: "orderclose" + neverSyncs, title: "orderclose, sync: never", workloads: onlyPower, servers: kafka, make: relay},
		{name: "orderclose-all" + neverSyncs, title: "orderclose, all its roles, sync: never", workloads: onlyPower, servers: withRedis, make: roles},
		{name: "redis-always", title: "Redis sorted set, polled every 100 ms, appendfsync always", workloads: onlyPower,
			servers: redis("--appendfsync", "always"), make: often},
		{name: "rocketmq-sync", title: "RocketMQ, by timer, SYNC_FLUSH", workloads: onlyPower,
			servers: one("rocketmq", "flushDiskType=SYNC_FLUSH"), make: newRocketMQ},
		{name: "nats-always", title: "NATS JetStream, message schedules, sync_interval always", workloads: onlyPower,
			servers: one("nats", "--config", natsAlways), make: newNATS},
	}
}

// specsOf returns the named ways, or all if names is empty.
func specsOf(names string) ([]spec, error) {
	all := specs()
	var chosen []spec
	for _, name := range strings.Fields(names) {
		i := slices.IndexFunc(all, func(s spec) bool { return s.name == name })
		if i < 0 {
			var known []string
			for _, s := range all {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("PEERS names %q: write some of %s", name, strings.Join(known, " "))
		}
		chosen = append(chosen, all[i])
	}
	if chosen == nil {
		return all, nil
	}
	return chosen, nil
}
