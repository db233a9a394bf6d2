package realtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/rights"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/producer"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// accessCase is a part that has all rows of its table, or all but one.
type accessCase struct {
	part    string
	rows    []row
	without *row // nil: has all rows
	user    string
	prefix  string
	cfg     *config.Config
	file    string
	prepare func(ctx context.Context, db *store.Store) error // prepares the database of a role; may be nil
	as      rights.Play                                      // how the role of a room is played
}

const accessTopics = `topics: {prefix: %[1]s}
partitions: 2
buckets: [1s, 2s]
`

// accessCases returns the cases of all parts in the table.
func accessCases(t *testing.T, b *broker) []*accessCase {
	t.Helper()
	parts, rows := accessTable(t)
	ofRooms := must.Get(rights.All("../../.."))(t).Play
	var all []*accessCase
	for _, part := range parts {
		for i := -1; i < len(rows[part]); i++ {
			if i >= 0 && !ring.All() {
				break
			}
			c := &accessCase{part: part, prefix: newPrefix(), user: fmt.Sprintf("%s-%d", part, i+1)}
			for j, row := range rows[part] {
				if i == j {
					c.without = &row
				} else {
					c.rows = append(c.rows, row)
				}
			}
			c.file = filepath.Join(t.TempDir(), "topics.yaml")
			text := fmt.Sprintf(accessTopics, c.prefix)
			c.as = ofRooms[part]
			text += must.Get(sectionOf(part, c.as, c.prefix))(t)
			must.Do(t, os.WriteFile(c.file, []byte(text), 0o600))
			c.cfg = must.Get(config.Load(c.file, room.Sections(rooms.All())...))(t)
			all = append(all, c)
		}
	}
	return all
}

func (c *accessCase) String() string {
	if c.without == nil {
		return c.part + " with all"
	}
	return c.part + " without " + c.without.String()
}

func (c *accessCase) acls(t *testing.T) []kafkago.ACLEntry {
	var all []kafkago.ACLEntry
	for _, row := range c.rows {
		all = append(all, row.acl(t, c.user, c.prefix))
	}
	return all
}

const (
	// parallelCases is how many cases run in parallel. They mostly wait, but with 40 the broker gets so slow that the last ones take minutes.
	parallelCases = 12
	// later is when orders are due that must not become due during a case. On a busy machine, a part may take a minute to begin its work.
	later = time.Hour
)

// playCases plays the cases and checks each.
func playCases(t *testing.T, b *broker, cases []*accessCase) {
	_, security := b.mutual("admin")
	admin := b.connect(t, access{brokers: []string{b.mtls}, security: security})
	play := map[string]func(context.Context, *broker, *kafka.Cluster, *accessCase) error{
		"producer": playProducer, "relay": playRelay, "closer": playCloser, "compensator": playCompensator, "outbox": playOutbox,
		"inspector": playInspector, "viewer": playViewer, "operator": playOperator,
	}
	for part := range must.Get(rights.All("../../.."))(t).Play {
		play[part] = playRoom
	}
	var all []rowCase
	for _, c := range cases {
		must.That(t, play[c.part] != nil, "docs/security.md has a part %s that neither its room nor anything here plays", c.part)
		row := rowCase{name: c.String(), play: func(ctx context.Context) error { return play[c.part](ctx, b, admin, c) }}
		if c.without != nil {
			row.refusal = c.without.refusal(c.user, c.prefix)
		}
		all = append(all, row)
	}
	playRows(t, parallelCases, all)
}

func (b *broker) scram(user string) access { return b.by(kafka.ScramSHA512, user) }

// topicSlots limits how many cases create their topics in parallel, because the broker takes seconds for hundreds of topics.
var topicSlots = make(chan struct{}, 3)

// makeTopics creates the topics of the case.
func makeTopics(ctx context.Context, admin *kafka.Cluster, c *accessCase) error {
	topicSlots <- struct{}{}
	defer func() { <-topicSlots }()
	return apply(ctx, admin, ops.TopicSpecs(c.cfg))
}

// apply creates topics, and repeats what a busy broker does not answer.
func apply(ctx context.Context, admin *kafka.Cluster, specs []kafka.TopicSpec) error {
	return insist(ctx, func() error {
		_, _, err := admin.Apply(ctx, specs)
		return err
	})
}

// playProducer schedules an order that is due later and one that is due.
func playProducer(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	if err := makeTopics(ctx, admin, c); err != nil {
		return err
	}
	a := b.scram(c.user)
	p, err := producer.New(producer.Options{
		Brokers: a.brokers, TLS: a.security.TLS, SASL: a.security.SASL, TopicsFile: c.file,
		Timeout: 2 * time.Second, // a rejected producer retries
	})
	if err != nil {
		return err
	}
	defer p.Close()
	schedule := func(id string, in time.Duration) error {
		now := time.Now()
		return p.Schedule(ctx, orderclose.Order{ID: id, CreatedAt: now, Due: now.Add(in)})
	}
	for {
		err := errors.Join(schedule("later", later), schedule("due", -time.Second))
		if err == nil || strings.Contains(err.Error(), "lacks the ACL") || ctx.Err() != nil {
			return err
		}
	}
}

// record returns the record of an order.
func record(id string, due time.Time) (wire.Message, error) {
	return wire.Record{Order: orderclose.Order{ID: id, CreatedAt: time.Now(), Due: due}, Release: due}.Encode()
}

// put appends a record of a new order for each delay, and an unreadable record.
func put(ctx context.Context, admin *kafka.Cluster, topic string, dues ...time.Duration) error {
	messages := []wire.Message{{Key: []byte("unreadable"), Value: []byte("{}")}}
	for i, d := range dues {
		m, err := record(fmt.Sprintf("order-%d", i), time.Now().Add(d))
		if err != nil {
			return err
		}
		messages = append(messages, m)
	}
	return insist(ctx, func() error {
		_, err := admin.Append(ctx, topic, 0, messages)
		return err
	})
}

// playRelay runs a relay that forwards a record, hops another record, gives a third up, and measures the brokers' time.
func playRelay(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	if err := makeTopics(ctx, admin, c); err != nil {
		return err
	}
	if err := put(ctx, admin, c.cfg.Buckets[0].Topic, 100*time.Millisecond, later); err != nil {
		return err
	}
	return c.run(ctx, b, pipeline.Relay, func() error {
		return errors.Join(
			arrived(ctx, admin, c.cfg.Topics.Close), arrived(ctx, admin, c.cfg.Buckets[1].Topic),
			arrived(ctx, admin, c.cfg.Topics.DeadLetter), arrived(ctx, admin, c.cfg.Topics.Control),
			committed(ctx, admin, c.cfg.RelayGroup(c.cfg.Buckets[0]), c.cfg.Buckets[0].Topic),
		)
	})
}

// playCloser runs a closer that closes an order, schedules an order again that is due later by the database, and gives a third up.
func playCloser(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	if err := makeTopics(ctx, admin, c); err != nil {
		return err
	}
	if err := errors.Join(put(ctx, admin, c.cfg.Topics.Close, -time.Second, -time.Second),
		put(ctx, admin, c.cfg.Topics.DeadLetter, time.Minute)); err != nil { // a dead letter to count
		return err
	}
	return c.run(ctx, b, pipeline.Closer, func() error {
		return errors.Join(
			arrived(ctx, admin, c.cfg.Buckets[1].Topic), arrived(ctx, admin, c.cfg.Topics.DeadLetter),
			committed(ctx, admin, c.cfg.CloserGroup(), c.cfg.Topics.Close),
		)
	})
}

// playCompensator runs a compensator that records its sweep, and counts a dead letter.
func playCompensator(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	if err := makeTopics(ctx, admin, c); err != nil {
		return err
	}
	return c.run(ctx, b, pipeline.Compensator, func() error {
		state, err := ops.NewControl(admin, c.cfg.Topics.Control).Read(ctx, time.Now())
		if err == nil && len(state.Sweeps) == 0 {
			err = errors.New("no sweep is recorded")
		}
		return err
	})
}

// playOutbox runs a dispatcher that publishes an event, gives up one that is too large, and schedules an order that is due later and one that is due.
func playOutbox(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	if err := makeTopics(ctx, admin, c); err != nil {
		return err
	}
	c.prepare = func(ctx context.Context, db *store.Store) error {
		_, err := db.CloseOrders(ctx, orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: "order-0"}})
		if err == nil {
			_, err = db.DB().ExecContext(ctx, "INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('large', ?, 0)", strings.Repeat("x", 2<<20))
		}
		box, err2 := producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite})
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		now := time.Now()
		return errors.Join(
			box.Add(ctx, orderclose.SQL(db.DB()), orderclose.Order{ID: "later", CreatedAt: now, Due: now.Add(later)}),
			box.Add(ctx, orderclose.SQL(db.DB()), orderclose.Order{ID: "due", CreatedAt: now, Due: now.Add(-time.Second)}))
	}
	return c.run(ctx, b, pipeline.Outbox, func() error {
		return errors.Join(arrived(ctx, admin, c.cfg.Topics.Events), arrived(ctx, admin, c.cfg.Topics.DeadLetter),
			arrived(ctx, admin, c.cfg.Buckets[1].Topic), arrived(ctx, admin, c.cfg.Topics.Close), arrived(ctx, admin, c.cfg.Topics.Control))
	})
}

// done200 is the transport to services that always succeeds.
type done200 struct{}

func (done200) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// playRoom plays a role of a room as the access.yaml of the room says.
func playRoom(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	if err := errors.Join(makeTopics(ctx, admin, c), putRecords(ctx, admin, c.as, c.cfg)); err != nil {
		return err
	}
	return c.run(ctx, b, pipeline.Role(c.part), func() error { return usedRecords(ctx, admin, c.as, c.cfg, c.part) })
}

// putRecords appends the records that a role reads. A topic that is none of the pipeline gets one partition.
func putRecords(ctx context.Context, k *kafka.Cluster, p rights.Play, cfg *config.Config) error {
	for _, r := range p.Records {
		topic := cfg.Topics.Prefix + r.Topic
		value, err := rights.Text(r.Value, cfg.Topics.Prefix)
		m := wire.Message{Key: []byte(r.Key), Value: []byte(value)}
		for name, text := range r.Headers {
			text, failed := rights.Text(text, cfg.Topics.Prefix)
			m.Headers, err = append(m.Headers, wire.Header{Key: name, Value: []byte(text)}), errors.Join(err, failed)
		}
		there, failed := k.Exists(ctx, topic)
		if err = errors.Join(err, failed); err == nil && !there {
			err = apply(ctx, k, []kafka.TopicSpec{{Name: topic, Partitions: 1, Replication: 1, Retention: time.Hour}})
		}
		if err != nil {
			return err
		}
		if err := insist(ctx, func() error { _, err := k.Append(ctx, topic, 0, []wire.Message{m}); return err }); err != nil {
			return err
		}
	}
	return nil
}

// usedRecords returns an error until a role has appended its records, and committed those that it reads.
func usedRecords(ctx context.Context, k *kafka.Cluster, p rights.Play, cfg *config.Config, role string) (err error) {
	for _, name := range p.Arrives {
		topic := cfg.Topics.Prefix + name
		there, failed := k.Exists(ctx, topic)
		switch {
		case failed == nil && !there:
			failed = fmt.Errorf("topic %s does not exist yet", topic)
		case failed == nil:
			failed = arrived(ctx, k, topic)
		}
		err = errors.Join(err, failed)
	}
	if p.Commits != "" {
		topic := cfg.Topics.Prefix + p.Commits
		err = errors.Join(err, committed(ctx, k, cfg.Group(role, topic), topic))
	}
	return err
}

// run runs a role until done succeeds or the log names a missing row. It returns the error of done with the log.
func (c *accessCase) run(ctx context.Context, b *broker, role pipeline.Role, done func() error) error {
	logs := &testkit.LogBuffer{}
	logger := slog.New(slog.NewTextHandler(logs, nil))
	a := b.scram(c.user)
	cluster, err := kafka.New(kafka.Options{Brokers: a.brokers, Security: a.security, Logger: logger})
	if err != nil {
		return err
	}
	defer cluster.Close()
	db, err := sqlite.Open(sqlite.Memory, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	db.UseTables(room.Tables(rooms.All(), c.cfg)...)
	now := time.Now()
	if err := errors.Join(db.Migrate(ctx),
		scenario.OrdersOf(db).CreateOrder(ctx, orderclose.Order{ID: "order-0", CreatedAt: now, Due: now.Add(-time.Second)}, nil),
		scenario.OrdersOf(db).CreateOrder(ctx, orderclose.Order{ID: "order-1", CreatedAt: now, Due: now.Add(later)}, nil)); err != nil {
		return err
	}
	if c.prepare != nil {
		if err := c.prepare(ctx, db); err != nil {
			return err
		}
	}
	servers := clients.Clients{Kafka: cluster, Store: db}
	if role == pipeline.Relay {
		servers.Store = nil // a relay reaches no database
	}
	part, err := pipeline.New(pipeline.Options{
		Config: c.cfg, Connections: servers, Rooms: rooms.All(), Services: done200{}, Logger: logger, Environment: pipeline.Environment{Others: c.as.Environment},
	})
	if err != nil {
		return err
	}
	refused := func() bool {
		return c.without != nil && c.without.refusal(c.user, c.prefix).MatchString(refusalsAtWork(logs.Tail(1<<20)))
	}
	return runUntil(ctx, part, role, logs, refused, func() error {
		err := done()
		log := refusalsAtWork(logs.Tail(1 << 20))
		switch {
		case err == nil && log != "":
			err = errors.New("the table lacks something")
		case err == nil && c.without != nil:
			err = errors.New("all is done, and nothing was refused yet")
		}
		return err
	})
}

// runUntil runs a role until done succeeds, or the role was refused, or ctx ends. It returns the error of done with the log.
func runUntil(ctx context.Context, part *pipeline.App, role pipeline.Role, logs *testkit.LogBuffer, refused func() bool, done func() error) error {
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- part.Run(running, role) }()
	defer func() {
		stop()
		<-ran
	}()
	var last error
	err := process.Await(ctx, func(ctx context.Context) error {
		err := done()
		if err != nil && ctx.Err() == nil {
			last = err
		}
		if err != nil && refused() {
			return nil
		}
		return err
	})
	switch {
	case err != nil: // it says no more than that ctx has ended
		return fmt.Errorf("%w; before that: %w\nthe log:\n%s", err, last, logs.Tail(4000))
	case last != nil && refused():
		return fmt.Errorf("%w\n%s", last, logs.Tail(1<<20))
	}
	return nil
}

// refusalsAtWork returns the log lines that name a missing access, without those about optional checks at the start.
func refusalsAtWork(log string) string {
	var all strings.Builder
	for line := range strings.Lines(log) {
		if strings.Contains(line, "lacks the ACL") && !strings.Contains(line, "not everything about the topics can be checked") {
			all.WriteString(line)
		}
	}
	return all.String()
}

// arrived returns an error while the topic has no record.
func arrived(ctx context.Context, admin *kafka.Cluster, topic string) error {
	for p := range 2 {
		if _, end, err := admin.Bounds(ctx, topic, p); err != nil || end > 0 {
			return err
		}
	}
	return fmt.Errorf("nothing has arrived in %s", topic)
}

// committed returns an error while the group has not committed all of the topic.
func committed(ctx context.Context, admin *kafka.Cluster, group, topic string) error {
	lag, err := admin.WaitingIn(ctx, group, topic)
	if err == nil && lag > 0 {
		err = fmt.Errorf("%s has still to commit %d records", group, lag)
	}
	return err
}

// cli runs commands of the production binary until one fails.
func (c *accessCase) cli(ctx context.Context, b *broker, commands ...[]string) error {
	path, err := binary()
	if err != nil {
		return err
	}
	for _, args := range commands {
		limited, cancel := context.WithCancel(ctx)
		out := &testkit.LogBuffer{}
		cmd := exec.CommandContext(limited, path, append(args, "--config", c.file)...)
		cmd.Env, cmd.Stdout, cmd.Stderr = b.scram(c.user).env, out, out
		if c.without != nil { // a command whose append is rejected retries until it is ended
			go func() {
				if process.Await(limited, func(context.Context) error {
					if !c.without.refusal(c.user, c.prefix).MatchString(out.Tail(1 << 20)) {
						return errors.New("nothing was refused yet")
					}
					return nil
				}) == nil {
					cancel()
				}
			}()
		}
		err := cmd.Run()
		cancel()
		if err != nil {
			return fmt.Errorf("orderclose %v: %w\n%s", args, err, out.Tail(1<<20))
		}
	}
	return nil
}

func playInspector(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	if err := makeTopics(ctx, admin, c); err != nil {
		return err
	}
	return c.cli(ctx, b, []string{"topics", "check"})
}

// playViewer reads records that wait in a bucket and in the topics of due orders, and records of the dead-letter topic and the control topic.
func playViewer(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	if err := makeTopics(ctx, admin, c); err != nil {
		return err
	}
	for _, topic := range []string{c.cfg.Buckets[0].Topic, c.cfg.Topics.Close, c.cfg.Topics.DeadLetter, c.cfg.Topics.Control} {
		due := time.Minute
		if topic == c.cfg.Topics.Close { // status exits with 3 if a record is there too early
			due = -time.Second
		}
		if err := put(ctx, admin, topic, due); err != nil {
			return err
		}
	}
	return c.cli(ctx, b, []string{"status"}, []string{"dlq", "ls"}, []string{"sweeps"})
}

// playOperator fixes every kind of drift, in delay topics and in others, replays, and redrives a dead letter that is due and one that is not.
func playOperator(ctx context.Context, b *broker, admin *kafka.Cluster, c *accessCase) error {
	var drifted []kafka.TopicSpec
	for _, spec := range ops.TopicSpecs(c.cfg) {
		switch spec.Name {
		case c.cfg.Buckets[0].Topic, c.cfg.Topics.Close:
			spec.Partitions, spec.Retention = 1, time.Hour
			drifted = append(drifted, spec)
		}
	}
	if err := apply(ctx, admin, drifted); err != nil {
		return err
	}
	if err := put(ctx, admin, c.cfg.Topics.Close, -time.Second); err != nil {
		return err
	}
	if err := admin.SetPosition(ctx, c.cfg.CloserGroup(), c.cfg.Topics.Close, 0, 0); err != nil { // which shows whose topic it is
		return err
	}
	var dead []kafka.TopicSpec
	for _, spec := range ops.TopicSpecs(c.cfg) {
		if spec.Name == c.cfg.Topics.DeadLetter {
			dead = append(dead, spec)
		}
	}
	if err := apply(ctx, admin, dead); err != nil {
		return err
	}
	for i, due := range []time.Duration{-time.Second, time.Hour} {
		m, err := record(fmt.Sprint(i), time.Now().Add(due))
		if err != nil {
			return err
		}
		m.Topic = c.cfg.Topics.Close
		letter := wire.DeadLetter(m, "closer", "failed", "to be sent again")
		if _, err := admin.Append(ctx, c.cfg.Topics.DeadLetter, 0, []wire.Message{letter}); err != nil {
			return err
		}
	}
	return c.cli(ctx, b, []string{"topics", "apply"}, []string{"topics", "check"},
		[]string{"replay", "--from", time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano), "--to",
			time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano), "--yes"},
		[]string{"dlq", "redrive", "--yes"})
}
