package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/producer"
)

// pipeline is this project with buckets that fit the delays: the program orderclose, the producer package, and a
// consumer of the close topic.
type pipeline struct {
	run      run
	roles    string // of the program, with spaces between them: relay, or others with a database
	file     string // topics.yaml
	producer *producer.Producer
	relay    *process.Process
	db       *sql.DB
	jobs     *pgxpool.Pool // of River
}

// bucketsOf returns the buckets for the delays of each workload, as an operator sets them.
var bucketsOf = map[string]string{
	"w1": "[5s]", "w2": "[10s]", "w3": "[1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 9s, 10s]", "w4": "[5s]", "w5": "[10s]", "w6": "[10s, 1m, 5m, 30m, 2h, 12h]",
	"w7": "[10s]",
}

const closePartitions = 12

// Roles of the program.
const (
	rolesRelay = "relay"
	rolesAll   = "all"
)

func newOrderclose(roles string) func(run) way {
	return func(r run) way {
		return &pipeline{run: r, roles: roles, file: filepath.Join(r.Dir, "topics.yaml")}
	}
}

func (p *pipeline) prefix() string            { return "peers-" + p.run.ID + "-" }
func (p *pipeline) closeTopic() string        { return p.prefix() + "order-close" }
func (p *pipeline) process() *process.Process { return p.relay }
func (p *pipeline) neverSyncs() bool          { return strings.HasSuffix(p.run.Way, neverSyncs) }

func (p *pipeline) alwaysSyncs() bool { return strings.HasSuffix(p.run.Way, alwaysSyncs) }

// closes says whether the orders of the workload are in the database and are closed. Then a message is received when the event comes.
func (p *pipeline) closes() bool      { return p.roles == rolesAll && p.run.Workload == "w7" }
func (p *pipeline) brokers() []string { return strings.Split(p.run.Servers["kafka"], ",") }

func (p *pipeline) open(ctx context.Context) error {
	text := fmt.Sprintf("topics: {prefix: %s}\npartitions: %d\nreplication: %d\nbuckets: %s\n",
		p.prefix(), closePartitions, len(p.brokers()), bucketsOf[p.run.Workload])
	switch {
	case p.neverSyncs():
		text += "sync: never\n"
	case p.alwaysSyncs():
		text += "sync: always\n"
	}
	if p.run.Way == bySweeps+unlimited {
		text += fmt.Sprintf("compensator: {rate: %d}\n", 1_000_000)
	}
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		return err
	}
	if p.roles != rolesRelay {
		if err := p.openDatabase(ctx); err != nil {
			return err
		}
	}
	if err := p.call("topics", "apply"); err != nil {
		return err
	}
	p.relay = &process.Process{Name: "orderclose run " + p.roles, Command: func() *exec.Cmd {
		cmd := p.command(append(append([]string{"run"}, strings.Fields(p.roles)...), "--quiet")...)
		cmd.Stderr = os.Stderr
		return cmd
	}}
	if err := p.relay.Start(); err != nil {
		return err
	}
	var err error
	p.producer, err = producer.New(producer.Options{Brokers: p.brokers(), TopicsFile: p.file})
	return err
}

// openDatabase creates the database with the program's own tables.
func (p *pipeline) openDatabase(ctx context.Context) error {
	driver, first := "mysql", ""
	if p.postgres() {
		driver, first = "pgx", "postgres"
	}
	admin, err := sql.Open(driver, p.dsn(first))
	if err != nil {
		return err
	}
	defer admin.Close()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+p.database()); err != nil {
		return err
	}
	if p.db, err = sql.Open(driver, p.dsn(p.database())); err != nil {
		return err
	}
	p.db.SetMaxIdleConns(p.run.Publishers)
	if p.run.Way == byRiver {
		if err := p.openJobs(ctx); err != nil {
			return err
		}
	}
	return p.call("migrate")
}

func (p *pipeline) database() string { return "orderclose_" + strings.ToLower(p.run.ID) }
func (p *pipeline) postgres() bool   { return inPostgres(p.run.Way) }

// dsn returns the DSN of a database of the way's server.
func (p *pipeline) dsn(database string) string {
	if p.postgres() {
		return "postgres://postgres@" + p.run.Servers["postgresql"] + "/" + database + "?sslmode=disable"
	}
	return dsnOf(p.run.Servers["mariadb"], database)
}

// command returns a command of the program with its environment.
func (p *pipeline) command(arguments ...string) *exec.Cmd {
	cmd := exec.Command(p.run.Program, append(arguments, "--config", p.file)...)
	cmd.Env = append(os.Environ(), environ.EnvBrokers+"="+p.run.Servers["kafka"], environ.EnvListen+"=127.0.0.1:0",
		environ.EnvInstance+"=peers") // as the systemd unit: the one process of its groups
	if p.db != nil {
		cmd.Env = append(cmd.Env, environ.EnvDSN+"="+p.dsn(p.database()))
	}
	if redis := p.run.Servers["redis"]; redis != "" {
		cmd.Env = append(cmd.Env, environ.EnvRedis+"=redis://"+redis+"/0")
	}
	return cmd
}

// call runs a command to its end.
func (p *pipeline) call(arguments ...string) error {
	if printed, err := p.command(arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("orderclose %s: %w\n%s", strings.Join(arguments, " "), err, printed)
	}
	return nil
}

// publish schedules each order by a call of its own, as checkouts do at the same time.
func (p *pipeline) publish(ctx context.Context, messages []message) error {
	if err := p.addOrders(ctx, messages); err != nil {
		return err
	}
	if len(messages) == 1 {
		return p.producer.Schedule(ctx, orderOf(messages[0]))
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, m := range messages {
		all.Go(func() error { return p.producer.Schedule(ctx, orderOf(m)) })
	}
	return all.Wait()
}

// addOrders adds the orders of W7 to the database, and those of the warm-up of W6 as paid orders. Without a row the closer
// would try these again while the way is watched. The other orders of W6 are not due in that time, and
// get no row.
func (p *pipeline) addOrders(ctx context.Context, messages []message) error {
	if p.db == nil {
		return nil
	}
	status, paidAt := 1, any(time.Now().UTC())
	if p.closes() {
		status, paidAt = 0, nil
	}
	for _, m := range messages {
		if m.Delay > time.Minute {
			continue
		}
		// A call that is repeated may have added the order before.
		_, err := p.db.ExecContext(ctx, "INSERT IGNORE INTO orders (id, category, status, created_at, expire_at, paid_at, version) VALUES (?, '', ?, ?, ?, ?, 1)",
			m.OrderID, status, m.Due.Add(-m.Delay).UTC(), m.Due.UTC(), paidAt)
		if err != nil {
			return err
		}
	}
	return nil
}

// padding makes the value of a record as long as the bodies of the other ways.
var padding = strings.Repeat("abcdefghijklmnopqrstuvwxyz", bodySize/26+1)

func orderOf(m message) orderclose.Order {
	return orderclose.Order{
		ID: m.OrderID, CreatedAt: m.Due.Add(-m.Delay).UTC(), Due: m.Due.UTC(),
		Attributes: map[string]any{"pad": padding[:bodySize-150]},
	}
}

// commitInterval is the time between two commits of the consumer.
const commitInterval = 100 * time.Millisecond

// asCloser says whether the worker has the client of the closer. A reader of kafka-go may lose what a broker without power forgets: its
// position is in memory.
func (p *pipeline) asCloser() bool { return len(p.brokers()) > 1 || p.run.Workload == "w7" }

func (p *pipeline) consume(ctx context.Context, to *receipts) error {
	go to.flushOften(ctx)
	if p.closes() {
		return p.consumeAsCloser(ctx, p.prefix()+"order-events", to)
	}
	if p.asCloser() {
		return p.consumeAsCloser(ctx, p.closeTopic(), to)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: p.brokers(), GroupID: "peers-" + p.run.ID, Topic: p.closeTopic(), StartOffset: kafka.FirstOffset,
		MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 500 * time.Millisecond, ReadBackoffMin: time.Millisecond, ReadBackoffMax: 5 * time.Millisecond,
		QueueCapacity: 1000, SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second, JoinGroupBackoff: 250 * time.Millisecond,
	})
	defer reader.Close()
	var mu sync.Mutex
	read := map[int]kafka.Message{} // the last of each partition that is not committed yet
	go func() {
		for sleep(ctx, commitInterval) {
			mu.Lock()
			last := slices.Collect(maps.Values(read))
			clear(read)
			mu.Unlock()
			if err := reader.CommitMessages(ctx, last...); err != nil {
				complain(ctx, "commit", err)
			}
		}
	}()
	for {
		m, err := reader.FetchMessage(ctx)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			complain(ctx, "fetch", err)
			continue
		}
		to.add(m.Value, time.Now())
		mu.Lock()
		read[m.Partition] = m
		mu.Unlock()
	}
}

func (p *pipeline) queries(ctx context.Context) (int64, error) {
	if p.db == nil {
		return 0, nil
	}
	return questions(ctx, p.db)
}

func (p *pipeline) settings(context.Context) map[string]string {
	flushing := "topics are synced before the ack, but the close topic each 1,000 records, as orderclose topics apply sets it on one broker"
	switch {
	case p.neverSyncs():
		flushing = "sync: never in topics.yaml: no fsync before the ack"
	case p.alwaysSyncs():
		flushing = "sync: always in topics.yaml: topics are synced before the ack (flush.messages=1)"
	}
	s := map[string]string{
		"server":  "Apache Kafka 4.1.0, 1 broker; " + flushing,
		"relay":   "orderclose run relay, built from this tree, with ORDERCLOSE_INSTANCE as the systemd unit sets it",
		"topics":  fmt.Sprintf("buckets %s, %d partitions, as orderclose topics apply creates them", bucketsOf[p.run.Workload], closePartitions),
		"publish": "package producer, Schedule for each order, acks from all in-sync replicas",
		"consume": "kafka-go Reader, 1 member of a group, MinBytes 1, MaxWait 500 ms, ReadBackoffMin 1 ms, a commit each 100 ms, " +
			"SessionTimeout 6 s, HeartbeatInterval 1 s, JoinGroupBackoff 250 ms; " + versionOf("github.com/segmentio/kafka-go"),
	}
	if len(p.brokers()) > 1 {
		s["server"] = "Apache Kafka 4.1.0, 3 brokers, each also a controller, " + strings.Join(brokerSettings, ", ") + ", -Xmx384m; " +
			"replication 3 with min.insync.replicas 2; default flushing: no fsync before the ack"
	}
	if p.asCloser() {
		s["consume"] = "the client of orderclose's closer, 1 member of a group, a commit each 200 ms"
	}
	if p.closes() {
		s["publish"] = "a row for each order, and then " + s["publish"]
		s["consume"] += "; of the topic order-events: an event says that the order is closed"
	}
	if p.roles == rolesAll {
		s["relay"] = "orderclose run all, built from this tree, with MariaDB and Redis: relay, closer, outbox and sweeps"
	}
	return s
}

func (p *pipeline) close() {
	stop(p.relay)
	if p.producer != nil {
		p.producer.Close()
	}
	if p.db != nil {
		p.db.Close()
	}
	if p.jobs != nil {
		p.jobs.Close()
	}
}
