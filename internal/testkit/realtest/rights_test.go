package realtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/rights"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/producer"
)

// plays has for each part what it does as a user who has exactly the rows of the part.
var plays = map[string]func(*seat){
	"producer": (*seat).producer, "relay": (*seat).relay, "closer": (*seat).closer, "compensator": (*seat).compensator, "outbox": (*seat).outbox,
	"callback": (*seat).callback, "checkout": (*seat).checkout, "rule": (*seat).rule, "migrate": (*seat).migrate, "webhook": (*seat).webhook,
	"inspector": func(s *seat) { s.cli(s.user.env, "topics check") }, "viewer": (*seat).viewer, "operator": (*seat).operator,
}

// Each part does its work with exactly the ACLs and the privileges of docs/security.md. That it needs each of them is not played.
func TestSecure_EachPartWorksWithItsRights(t *testing.T) {
	placementOf(t)
	t.Parallel()
	rows := must.Get(rights.Read("../../.."))(t)
	var parts []string
	for _, row := range slices.Concat(rows.Kafka, rows.Database) {
		if !slices.Contains(parts, row[0]) {
			parts = append(parts, row[0])
		}
	}
	oneDatabaseAfterAnother(t, func(t *testing.T, servers environ.Servers, d database) {
		t.Parallel()
		b := newBroker(t, parts...)
		_, security := b.mutual("admin")
		admin := b.connect(t, access{brokers: []string{b.mtls}, security: security})
		var seats []*seat
		var acls []kafkago.ACLEntry
		ofKafka := accessTable(t)
		for _, part := range parts {
			s := &seat{part: part, prefix: newPrefix(), user: b.by(kafka.Plain, part), admin: admin}
			for _, row := range ofKafka[part] {
				acls = append(acls, row.acl(t, part, s.prefix))
			}
			seats = append(seats, s)
		}
		b.grant(acls)
		for _, s := range seats {
			t.Run(s.part, func(t *testing.T) {
				t.Parallel()
				s.t = t
				s.configure()
				s.openDatabase(servers.DSN, d, rows.Database)
				if len(ofKafka[s.part]) > 0 && s.part != "operator" { // which creates topics
					must.Do(t, apply(t.Context(), admin, topics.Specs(s.cfg)))
				}
				play := plays[s.part]
				must.That(t, play != nil, "docs/security.md has a part %s that nothing here plays", s.part)
				play(s)
			})
		}
	})
}

// seat is a part with topics and a database of its own.
type seat struct {
	t            *testing.T
	part, prefix string
	cfg          *config.Config
	file         string         // the topics.yaml of its commands
	user         access         // its user of Kafka
	dsn, dbUser  string         // its user of the database; "": no row of the part is about it
	admin        *kafka.Cluster // may do everything
	root         *store.Store   // may do everything
	postgres     bool
}

// later is when orders are due that must not become due during the test.
const later = time.Hour

func (s *seat) configure() {
	s.t.Helper()
	text := "topics: {prefix: " + s.prefix + "}\npartitions: 2\nbuckets: [1s, 2s]\n"
	switch s.part {
	case "webhook":
		text += "webhook: {url: https://shop.example/events}\n"
	case "compensator":
		text += "compensator: {period: 1s}\ndelays: {rules: [{match: {}, remind: [1m]}]}\n"
	}
	s.cfg = must.Get(config.Parse("topics.yaml", []byte(text)))(s.t)
	s.cfg.Closer.Payment.Recheck = []time.Duration{time.Second}
	s.file = filepath.Join(s.t.TempDir(), "topics.yaml")
	must.Do(s.t, os.WriteFile(s.file, []byte(text+"closer: {payment: {url: \"http://127.0.0.1:1/\"}}\n"), 0o600))
}

// notOn has the databases on which a row is not needed, by the begin of its reason. That MariaDB does not need a row of MySQL and PostgreSQL is not played.
var notOn = map[string][]database{"only MySQL:": {mariadb, postgres}, "only PostgreSQL": {mariadb, mysqldb}, "not PostgreSQL": {postgres}}

// openDatabase creates a database with two orders, and a user with the rows of the part.
func (s *seat) openDatabase(server string, d database, rows [][]string) {
	s.t.Helper()
	name := "oc_" + strings.ToLower(rand.Text()[:16])
	create := "CREATE USER " + name + "@'%' IDENTIFIED BY '" + password(name) + "'"
	if s.dbUser, s.postgres = name+"@'%'", d == postgres; s.postgres {
		s.dbUser, create = name, "CREATE ROLE "+name+" LOGIN PASSWORD '"+password(name)+"'"
	}
	var grants []string
	for _, row := range rows {
		closes := row[0] == "closer" && (s.part == "compensator" || s.part == "rule") // closes orders too
		needed := row[0] == s.part || closes
		for reason, kinds := range notOn {
			needed = needed && !(strings.HasPrefix(rights.Why(row, 3), reason) && slices.Contains(kinds, d))
		}
		if needed {
			grants = append(grants, s.grant(row[2], row[1], name))
		}
	}
	if len(grants) == 0 {
		return
	}
	if s.part == "checkout" { // without any privilege in a database, a user cannot use it
		grants = append(grants, s.grant("SELECT", "orders", name))
	}
	dsn, drop, err := scenario.CreateDatabase(s.t.Context(), server, nil, name)
	must.Do(s.t, err)
	s.t.Cleanup(func() { expect.NoError(s.t, drop(context.Background())) })
	s.root = must.Get(store.Open(store.Options{DSN: dsn}))(s.t)
	s.t.Cleanup(func() { s.root.Close() })
	if s.part != "migrate" {
		must.Do(s.t, s.root.Migrate(s.t.Context()))
		s.exec(orders...)
	}
	s.exec(create)
	s.t.Cleanup(func() {
		owned := ""
		if s.postgres {
			owned = "DROP OWNED BY " + s.dbUser + "; "
		}
		_, err := s.root.DB().ExecContext(context.Background(), owned+"DROP USER "+s.dbUser)
		expect.NoError(s.t, err)
	})
	s.exec(grants...)
	if s.postgres {
		u := must.Get(url.Parse(dsn))(s.t)
		u.User = url.UserPassword(name, password(name))
		s.dsn = u.String()
		return
	}
	cfg := must.Get(mysql.ParseDSN(dsn))(s.t)
	cfg.User, cfg.Passwd = name, password(name)
	s.dsn = cfg.FormatDSN()
}

// grant returns the statement that grants a privilege on a table, of which * means all.
func (s *seat) grant(privilege, table, database string) string {
	on := database + "." + table
	switch {
	case s.postgres && privilege == "CREATE":
		on = "SCHEMA public"
	case s.postgres:
		on = table
	}
	return "GRANT " + privilege + " ON " + on + " TO " + s.dbUser
}

// orders are the statements that write two orders, both due. The stock does not have the SKU of order "bad", so that it cannot be closed.
var orders = []string{
	"INSERT INTO stock (sku_id, available, reserved) VALUES ('ink', 3, 2)",
	"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('good', '', 0, UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, UTC_TIMESTAMP(3) " +
		"- INTERVAL 1 MINUTE, 1)",
	"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('bad', '', 0, UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, UTC_TIMESTAMP(3) " +
		"- INTERVAL 1 MINUTE, 1)",
	"INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES ('good', 1, 'ink', 2), ('bad', 1, 'unknown', 1)",
}

var intervals = regexp.MustCompile(`INTERVAL (\d+ [A-Z]+)`)

// sql returns a statement of MySQL as the database takes it.
func (s *seat) sql(statement string) string {
	if s.postgres {
		return intervals.ReplaceAllString(strings.ReplaceAll(statement, "UTC_TIMESTAMP(3)", "now()"), "INTERVAL '$1'")
	}
	return statement
}

// exec executes statements that are written for MySQL, as the user who may do everything.
func (s *seat) exec(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		_, err := s.root.DB().ExecContext(s.t.Context(), s.sql(statement))
		must.That(s.t, err == nil, "%s: %v", statement, err)
	}
}

// has returns an error while the query counts no row.
func (s *seat) has(query string) error {
	n := 0
	if err := s.root.DB().QueryRowContext(s.t.Context(), query).Scan(&n); err != nil || n > 0 {
		return err
	}
	return fmt.Errorf("no rows by %s", query)
}

// open opens the database as the user of the part.
func (s *seat) open(o store.Options) *store.Store {
	s.t.Helper()
	o.DSN = s.dsn
	db := must.Get(store.Open(o))(s.t)
	s.t.Cleanup(func() { db.Close() })
	return db
}

// put appends records to the first partition of a topic, and repeats what a busy broker does not answer.
func put(t *testing.T, admin *kafka.Cluster, topic string, messages ...wire.Message) {
	t.Helper()
	must.Do(t, insist(t.Context(), func() error { return expect.Err(admin.Append(t.Context(), topic, 0, messages)) }))
}

// unreadable is a record that nobody can read.
var unreadable = wire.Message{Key: []byte("unreadable"), Value: []byte("{}")}

// put appends records to a topic, and an unreadable one.
func (s *seat) put(topic string, messages ...wire.Message) {
	s.t.Helper()
	put(s.t, s.admin, topic, append(messages, unreadable)...)
}

// record returns the record of an order that is due after a time.
func (s *seat) record(id string, after time.Duration) wire.Message {
	s.t.Helper()
	due := time.Now().Add(after)
	return must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: time.Now(), Due: due}, Release: due}.Encode())(s.t)
}

// arrived returns an error while one of the topics has no record.
func (s *seat) arrived(topics ...string) (missing error) {
	for _, topic := range topics {
		records := int64(0)
		partitions, err := s.admin.Partitions(s.t.Context(), topic)
		for p := range partitions {
			_, end, failed := s.admin.Bounds(s.t.Context(), topic, p)
			records, err = records+end, errors.Join(err, failed)
		}
		if err == nil && records == 0 {
			err = fmt.Errorf("nothing has arrived in %s", topic)
		}
		missing = errors.Join(missing, err)
	}
	return missing
}

// committed returns an error while the group has not committed all of the topic.
func (s *seat) committed(group, topic string) error {
	lag, err := scenario.WaitingIn(s.t.Context(), s.admin, group, topic)
	if err == nil && lag > 0 {
		err = fmt.Errorf("%s has still to commit %d records", group, lag)
	}
	return err
}

// done200 is the transport to services that always succeeds.
type done200 struct{}

func (done200) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// paidLate is a provider that knows of one payment, that of order late.
var paidLate = payment.ProviderFunc(func(_ context.Context, ids []string) ([]payment.Answer, error) {
	answers := make([]payment.Answer, len(ids))
	for i, id := range ids {
		if answers[i] = payment.Unpaid; id == "late" {
			answers[i] = payment.Paid
		}
	}
	return answers, nil
})

// refused matches what names a missing right.
var refused = regexp.MustCompile("lacks the ACL|command denied|permission denied")

// run runs the part as a role until done succeeds. Nothing may be refused, but a check at the start that the role does not need.
func (s *seat) run(done func(log string) error) {
	s.t.Helper()
	logs := &testkit.LogBuffer{}
	o := pipeline.Options{Config: s.cfg, Services: done200{}, Logger: slog.New(slog.NewTextHandler(logs, nil)),
		Secrets: pipeline.Secrets{Webhook: []string{serviceSecret}}}
	connections := clients.Clients{Kafka: must.Get(kafka.New(kafka.Options{Brokers: s.user.brokers, Security: s.user.security, Logger: o.Logger}))(s.t)}
	defer connections.Kafka.Close()
	if s.dsn != "" {
		connections.Store, o.Payment = s.open(store.Options{}), paidLate
	}
	o.Connections = connections
	app := must.Get(pipeline.New(o))(s.t)
	ctx, stop := context.WithCancel(s.t.Context())
	ran := make(chan error, 1)
	go func() { ran <- app.Run(ctx, pipeline.Role(s.part)) }()
	nothingRefused := func() {
		s.t.Helper()
		for line := range strings.Lines(logs.String()) {
			optional := strings.Contains(line, "not everything about the topics can be checked")
			must.That(s.t, optional || !refused.MatchString(line), "a right is missing: %s", line)
		}
	}
	defer func() {
		stop()
		<-ran
		if s.t.Failed() {
			s.t.Logf("the end of the log:\n%s", logs.Tail(4000))
			return
		}
		nothingRefused()
	}()
	await(s.t, func() error {
		nothingRefused()
		return done(logs.String())
	})
}

// cli runs commands of the production binary. It repeats one that a busy server does not answer. The exit code 6 says that the environment names
// no server of something that a command shows.
func (s *seat) cli(env []string, commands ...string) {
	s.t.Helper()
	for _, command := range commands {
		await(s.t, func() error {
			cmd := exec.CommandContext(s.t.Context(), must.Get(binary())(s.t), append(strings.Fields(command), "--config", s.file)...)
			cmd.Env = env
			out, err := cmd.CombinedOutput()
			code := cmd.ProcessState.ExitCode()
			must.That(s.t, (err == nil || code == 6 || code == exitTimedOut) && !refused.Match(out), "orderclose %s: %v\n%s", command, err, out)
			if code == exitTimedOut {
				return fmt.Errorf("orderclose %s gets no answer:\n%s", command, out)
			}
			return nil
		})
	}
}

// webhook sends an event, beside another program that takes one.
func (s *seat) webhook() {
	s.exec("INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('taken', '{}', UTC_TIMESTAMP(3)), ('good', " +
		`'{"specversion":"1.0","id":"e","source":"/orderclose","type":"order.closed","subject":"good","data":{}}', UTC_TIMESTAMP(3))`)
	other := must.Get(s.root.DB().BeginTx(s.t.Context(), nil))(s.t)
	defer other.Rollback()
	must.Get(other.ExecContext(s.t.Context(), "SELECT id FROM outbox_events ORDER BY id LIMIT 1 FOR UPDATE"))(s.t)
	s.run(func(string) error {
		return s.has("SELECT COUNT(*) FROM orderclose_webhook_state WHERE other_reader_ms > 0" +
			" AND NOT EXISTS (SELECT 1 FROM outbox_events WHERE order_id = 'good')" +
			" AND NOT EXISTS (SELECT 1 FROM orderclose_webhook_events WHERE order_id = 'good')")
	})
}

// producer schedules an order that is due later and one that is due.
func (s *seat) producer() {
	p := must.Get(producer.New(producer.Options{Brokers: s.user.brokers, TLS: s.user.security.TLS, SASL: s.user.security.SASL, TopicsFile: s.file,
		Timeout: waitLimit}))(s.t)
	defer p.Close()
	for _, after := range []time.Duration{later, -time.Second} {
		expect.NoError(s.t, p.Schedule(s.t.Context(), orderclose.Order{ID: after.String(), CreatedAt: time.Now(), Due: time.Now().Add(after)}))
	}
}

// relay forwards a record, hops another record, and gives a third up.
func (s *seat) relay() {
	small, topics := s.cfg.Buckets[0], s.cfg.Topics
	s.put(small.Topic, s.record("due", 100*time.Millisecond), s.record("later", later))
	s.run(func(string) error {
		return errors.Join(s.arrived(topics.Close, s.cfg.Buckets[1].Topic, topics.DeadLetter), s.committed(s.cfg.RelayGroup(small), small.Topic))
	})
}

// closer closes an order, retries one that cannot be closed, schedules one again that is due later by the database, gives a record up, and counts
// a dead letter. Then it records payments, and probes the database.
func (s *seat) closer() {
	s.exec("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('later', '', 0, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) "+
		"+ INTERVAL 1 HOUR, 1)",
		"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('asked', '', 0, '2026-02-01', '2026-02-01', 1)")
	s.put(s.cfg.Topics.DeadLetter)
	s.put(s.cfg.Topics.Close, s.record("good", -time.Minute), s.record("bad", -time.Minute), s.record("later", -time.Second))
	s.run(func(log string) error {
		err := s.has("SELECT COUNT(*) FROM receipts WHERE order_id = 'good' AND path = 'pipeline'")
		if !strings.Contains(log, "order=bad") {
			err = errors.Join(err, errors.New("order bad has not failed"))
		}
		return errors.Join(err, s.has("SELECT COUNT(*) FROM stock WHERE available = 5 AND reserved = 0"), s.arrived(s.cfg.Buckets[1].Topic),
			s.committed(s.cfg.CloserGroup(), s.cfg.Topics.Close))
	})
	db := s.open(store.Options{})
	must.Get(db.PayOrders(s.t.Context(), []orderclose.CloseRequest{{OrderID: "good"}, {OrderID: "asked"}}))(s.t)
	expect.NoError(s.t, errors.Join(s.has("SELECT COUNT(*) FROM late_payments WHERE order_id = 'good' AND source = 'recheck'"),
		s.has("SELECT COUNT(*) FROM paid_receipts WHERE order_id = 'asked'"), db.Probe(s.t.Context())))
}

// compensator sweeps twice: the second time, the row of the first sweep exists. It finds that a closed order was paid, writes a reminder, deletes an
// old one, and counts a dead letter.
func (s *seat) compensator() {
	name := s.cfg.Topics.Close
	s.exec("INSERT INTO rechecks (name, checked_until) VALUES ('"+name+"/1s', '2026-01-01')", "INSERT INTO sweeps (name, hour) VALUES ('"+name+"', '2026-01-01')",
		"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('late', '', 2, '2026-02-01', '2026-02-01', 2)",
		"INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) VALUES ('late', 'closed', '2026-02-01', '2026-02-01', 'sweep', 0, 0)",
		"INSERT INTO order_reminders (due_at, order_id, before_ms, created_at) VALUES ('2026-01-01', 'old', 1000, '2026-01-01')",
		"INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES ('soon', '', 0, UTC_TIMESTAMP(3) - INTERVAL 1 HOUR, UTC_TIMESTAMP(3) "+
			"+ INTERVAL 50 SECOND, 1)")
	s.put(s.cfg.Topics.DeadLetter)
	s.run(func(string) error {
		return errors.Join(s.has("SELECT COUNT(*) FROM receipts WHERE order_id = 'good' AND path = 'sweep'"),
			s.has("SELECT COUNT(*) FROM sweeps WHERE ended_at > '2026-02-01' AND name = '"+name+"'"),
			s.has("SELECT COUNT(*) FROM late_payments WHERE order_id = 'late' AND source = 'recheck'"),
			s.has("SELECT CASE WHEN MIN(order_id) = 'soon' THEN 1 ELSE 0 END FROM order_reminders"))
	})
}

// dialect returns the dialect of an outbox in the database.
func (s *seat) dialect() producer.Dialect {
	if s.postgres {
		return producer.Postgres
	}
	return producer.MySQL
}

// schedule adds an order to the outbox.
func (s *seat) schedule(db *sql.DB, after time.Duration) {
	s.t.Helper()
	box := must.Get(producer.NewOutbox(producer.OutboxOptions{Dialect: s.dialect()}))(s.t)
	must.Do(s.t, box.Add(s.t.Context(), orderclose.SQL(db), orderclose.Order{ID: after.String(), CreatedAt: time.Now(), Due: time.Now().Add(after)}))
}

// outbox publishes an event, gives up one that is too large, and schedules an order that is due later and one that is due.
func (s *seat) outbox() {
	s.schedule(s.root.DB(), later)
	s.schedule(s.root.DB(), -time.Second)
	s.exec("INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('good', '{}', UTC_TIMESTAMP(3)), ('large', REPEAT('x', 2097152), UTC_TIMESTAMP(3))")
	topics := s.cfg.Topics
	s.run(func(string) error {
		return errors.Join(s.arrived(topics.Events, topics.DeadLetter, s.cfg.Buckets[1].Topic, topics.Close),
			s.has("SELECT CASE WHEN (SELECT COUNT(*) FROM outbox_events) + (SELECT COUNT(*) FROM outbox_schedules) = 0 THEN 1 ELSE 0 END"))
	})
}

// callback records a payment in time, and one of an order that is closed, whose amount becomes known. An earlier row has no id.
func (s *seat) callback() {
	s.exec("UPDATE orders SET status = 2, payment_id = 'p1' WHERE id = 'bad'",
		"INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms) SELECT id, 'closed', expire_at, expire_at, 'sweep', 0, 0 FROM "+
			"orders WHERE id = 'bad'",
		"INSERT INTO late_payments (order_id, source, found_at) VALUES ('bad', 'recheck', UTC_TIMESTAMP(3))")
	db := s.open(store.Options{})
	for _, p := range []store.LatePayment{{OrderID: "good", PaymentID: "p1"}, {OrderID: "bad", PaymentID: "p1"},
		{OrderID: "bad", PaymentID: "p1", Amount: 1250, Currency: "EUR"}} {
		tx := must.Get(db.DB().BeginTx(s.t.Context(), nil))(s.t)
		_, err := callback.RecordPayment(s.t.Context(), db.Payments, orderclose.SQL(tx), p)
		must.Do(s.t, errors.Join(err, tx.Commit()))
	}
	expect.NoError(s.t, s.has("SELECT CASE WHEN COUNT(*) = 2 THEN 1 ELSE 0 END FROM late_payments"))
}

// checkout schedules an order in a transaction.
func (s *seat) checkout() {
	driver := "mysql"
	if s.postgres {
		driver = "pgx"
	}
	db := must.Get(sql.Open(driver, s.dsn))(s.t)
	defer db.Close()
	s.schedule(db, time.Minute)
}

// byKey opens the database with orders that are due by rule, in the table by_key.
func (s *seat) byKey() *store.Store {
	due := mapping.TimeColumn{Column: "created", Type: mapping.UnixSeconds}
	return s.open(store.Options{Delays: orderclose.Delays{Default: 30 * time.Minute}, Orders: &mapping.Mapping{
		Orders: "by_key", ID: mapping.Key{Column: "id", Type: mapping.Integer}, Status: mapping.Status{Column: "status", From: mapping.OneOf{mapping.IntValue(0)},
			To: mapping.IntValue(2)},
		Due: due, Created: &due, ByRule: true,
	}})
}

// rule finds and closes orders that are due by rule. Their table has only its primary key.
func (s *seat) rule() {
	id := "BIGINT AUTO_INCREMENT PRIMARY KEY"
	if s.postgres {
		id = "bigserial PRIMARY KEY"
	}
	created := time.Now().Add(-time.Hour).Unix()
	s.exec("CREATE TABLE by_key (id "+id+", status INT NOT NULL, created BIGINT NOT NULL)",
		fmt.Sprintf("INSERT INTO by_key (id, status, created) VALUES (1, 0, %d), (2, 0, %[1]d)", created),
		"INSERT INTO order_delays (pipeline, category, since_us, delay_us) VALUES ('', '', 0, 1800000000)", "GRANT SELECT, UPDATE ON by_key TO "+s.dbUser)
	db := s.byKey()
	found := must.Get(db.Overdue(s.t.Context(), time.Now(), orderclose.Order{}, 10))(s.t)
	expect.Equal(s.t, len(found), 2, "orders of a page, which are %v", found)
	out := must.Get(db.CloseOrders(s.t.Context(), orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: "2"}}))(s.t)
	expect.Equal(s.t, out[0].Verdict, orderclose.Closed, "the verdict of a close, %+v", out)
}

// migrate creates the schema.
func (s *seat) migrate() {
	s.cli([]string{environ.EnvDSN + "=" + s.dsn}, "migrate")
	expect.NoError(s.t, s.byKey().RecordDelays(s.t.Context()))
}

// viewer runs the commands that only read, beside records that wait in a bucket and in the topics of due orders, and records of the dead-letter topic. It
// reads the version of the schema, and runs the query of the runbook.
func (s *seat) viewer() {
	topics := s.cfg.Topics
	s.put(topics.Close, s.record("due", -time.Second)) // status exits with 3 if a record is there too early
	for _, topic := range []string{s.cfg.Buckets[0].Topic, topics.DeadLetter} {
		s.put(topic, s.record("due", time.Minute))
	}
	s.cli(s.user.env, "status", "dlq ls")
	dsn := environ.EnvDSN + "=" + s.dsn
	s.cli([]string{dsn}, "order good", "audit --from 3h", "payments late")
	s.cli([]string{dsn, environ.EnvBrokers + "=127.0.0.1:1"}, "status") // which needs Kafka, whether it answers or not
	db := s.open(store.Options{})
	must.Do(s.t, db.Migrated(s.t.Context()))
	must.Get(db.SweepHours(s.t.Context(), topics.Close, time.Time{}, 1))(s.t)
	section, _ := runbook.At("is-everything-well")
	must.Get(db.DB().ExecContext(s.t.Context(), strings.Join(section.Commands("Meaning", "sql"), " ")))(s.t)
}

// operator fixes every kind of drift, in delay topics and in others, replays, also a dead letter that is due and one that is not. Then it pauses
// closing, resumes it, resolves a late payment, and writes the event of a close again.
func (s *seat) operator() {
	for _, spec := range topics.Specs(s.cfg) {
		switch spec.Name {
		case s.cfg.Buckets[0].Topic, s.cfg.Topics.Close:
			spec.Partitions, spec.Retention = 1, time.Hour
		case s.cfg.Topics.DeadLetter:
		default:
			continue
		}
		must.Do(s.t, apply(s.t.Context(), s.admin, []kafka.TopicSpec{spec}))
	}
	s.put(s.cfg.Topics.Close, s.record("order-0", -time.Second))
	must.Do(s.t, s.admin.SetPosition(s.t.Context(), s.cfg.CloserGroup(), s.cfg.Topics.Close, 0, 0)) // which shows whose topic it is
	var letters []wire.Message
	for _, after := range []time.Duration{-time.Second, later} {
		m := s.record(after.String(), after)
		m.Topic = s.cfg.Topics.Close
		letters = append(letters, wire.DeadLetter(m, "closer", "failed", "to be sent again"))
	}
	put(s.t, s.admin, s.cfg.Topics.DeadLetter, letters...)
	from, to := time.Now().Add(-time.Minute).UTC(), time.Now().Add(time.Second).UTC()
	s.cli(s.user.env, "topics apply", "topics check",
		"replay --from "+from.Format(time.RFC3339Nano)+" --to "+to.Format(time.RFC3339Nano)+" --yes", "replay --dead-letters --from 1m --yes")

	s.exec("INSERT INTO late_payments (id, order_id, payment_id, source, found_at) VALUES (17, 'good', 'p', 'callback', UTC_TIMESTAMP(3))",
		"INSERT INTO receipts (order_id, verdict, due, closed_at, path, attempts, lateness_ms)"+
			" VALUES ('good', 'closed', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE, 'sweep', 0, 0)")
	s.cli([]string{environ.EnvDSN + "=" + s.dsn}, "pause --for 1m --reason one", "pause --for 1m --reason two", "resume",
		"payments resolve 17 --refunded --yes", "events again --from 3h --yes")
}
