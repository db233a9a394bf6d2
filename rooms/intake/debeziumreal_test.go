package intake

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver of the shop
	_ "github.com/jackc/pgx/v5/stdlib" // the same on PostgreSQL

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/servers"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// The servers are in another zone than the rows, to show each mistake.
var shopServers = map[string][]string{
	"mariadb":    {"--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--default-time-zone=+08:00"},
	"mysql":      {"--log-bin=binlog", "--server-id=1", "--default-time-zone=-03:00"},
	"postgresql": {"-c", "wal_level=logical", "-c", "timezone=Asia/Shanghai"},
}

// shopDatabase is a server with the table of orders.
type shopDatabase struct {
	*sql.DB
	t        *testing.T
	port     string
	postgres bool
}

// TestReal_Debezium runs each connector in a worker of Kafka Connect, as users do. deploy/native/install.sh debezium fetches them.
func TestReal_Debezium(t *testing.T) {
	if os.Getenv("DEBEZIUM") == "" {
		t.Skip("it takes a minute and a half: make test-connectors")
	}
	brokers := os.Getenv("ORDERCLOSE_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("ORDERCLOSE_KAFKA_BROKERS names no broker")
	}
	if os.Getenv("ORDERCLOSE_SERVERS") == "containers" {
		t.Skip("databases with a binary log of their own are native")
	}
	cache, err := os.UserCacheDir()
	if _, missing := os.Stat(filepath.Join(cache, "orderclose", filepath.Base(filepath.Dir(connectors[0].file())))); err != nil || missing != nil {
		t.Skip("Debezium is not installed: deploy/native/install.sh debezium")
	}
	cluster := must.Get(kafka.New(kafka.Options{Brokers: strings.Split(brokers, ",")}))(t)
	t.Cleanup(cluster.Close)
	databases, prefix, files, topics := startShops(t), "test"+strings.ToLower(rand.Text()[:8]), []string{brokers}, []string{}
	for i, c := range connectors {
		topics = append(topics, prefix+"-"+c.name+".shop.orders")
		files = append(files, c.properties(t, i, prefix, databases[c.server].port))
	}
	worker := newServer(t, "debezium", files...)
	must.Do(t, worker.Start(t.Context()))
	defer func() {
		if t.Failed() {
			printed, _ := os.ReadFile(filepath.Join(worker.Dir, "log"))
			t.Logf("%.20000s", printed)
		}
		expect.NoError(t, drop.Topics(context.Background(), cluster, topics...))
	}()
	for i := range connectors {
		readValues(t, cluster, topics[i], len(snapshotRows))
	}
	for _, db := range databases {
		db.work()
	}
	for i, c := range connectors {
		t.Run(c.name, func(t *testing.T) {
			values := readValues(t, cluster, topics[i], len(c.expected(dueColumns[0], false)))
			c.check(t, values)
			if os.Getenv("UPDATE_GOLDEN") == "1" {
				c.record(t, values, prefix)
			}
		})
	}
}

// newServer returns a server that is killed when the test ends.
func newServer(t *testing.T, kind string, args ...string) *servers.Server {
	t.Helper()
	s := must.Get(servers.New(kind, filepath.Join(t.TempDir(), kind), args...))(t)
	t.Cleanup(func() { expect.NoError(t, s.Kill()) })
	return s
}

func startShops(t *testing.T) map[string]shopDatabase {
	all, list := map[string]shopDatabase{}, []*servers.Server{}
	for kind, args := range shopServers {
		list = append(list, newServer(t, kind, args...))
	}
	err := servers.StartAll(t.Context(), list...)
	if err != nil && os.Getenv("REQUIRE_REAL") != "1" {
		t.Skip(err)
	}
	must.Do(t, err)
	for _, s := range list {
		driver, dsn := "mysql", "root@tcp("+s.Addr()+")/?time_zone=%27%2B00%3A00%27&sql_mode=%27%27"
		if s.Kind == "postgresql" {
			driver, dsn = "pgx", "postgres://postgres@"+s.Addr()+"/postgres?sslmode=disable"
		}
		db := must.Get(sql.Open(driver, dsn))(t)
		t.Cleanup(func() { _ = db.Close() })
		all[s.Kind] = shopDatabase{db, t, s.Port, s.Kind == "postgresql"}
		all[s.Kind].create()
	}
	return all
}

func (db shopDatabase) exec(statements ...string) {
	db.t.Helper()
	for _, s := range statements {
		_, err := db.ExecContext(db.t.Context(), s)
		must.That(db.t, err == nil, "%v\n%s", err, s)
	}
}

// create creates the table with the rows of the snapshot.
func (db shopDatabase) create() {
	if db.postgres {
		db.exec(`CREATE SCHEMA shop`, `CREATE TYPE shop.state AS ENUM ('unpaid', 'paid', 'closed')`, `CREATE TABLE shop.orders (id BIGINT PRIMARY KEY,
			number UUID NOT NULL, state shop.state NOT NULL, kind VARCHAR(20), hidden BOOLEAN NOT NULL, total DECIMAL(12,2) NOT NULL, wall0 timestamp(0),
			wall3 timestamp(3), wall6 timestamp, at0 timestamptz(0), at3 timestamptz(3), at6 timestamptz, secs BIGINT, ms BIGINT)`)
	} else {
		db.exec(`CREATE DATABASE shop`, `CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, number BINARY(16) NOT NULL,
			state ENUM('unpaid', 'paid', 'closed') NOT NULL, kind VARCHAR(20), hidden BIT(1) NOT NULL, total DECIMAL(12,2) NOT NULL, wall0 DATETIME NOT NULL,
			wall3 DATETIME(3), wall6 DATETIME(6),
			at0 TIMESTAMP NULL, at3 TIMESTAMP(3) NULL, at6 TIMESTAMP(6) NULL, secs BIGINT NOT NULL, ms BIGINT)`)
	}
	for _, r := range snapshotRows {
		db.insert(r)
	}
}

func (db shopDatabase) insert(r shopRow) {
	db.t.Helper()
	kind, number := "NULL", "X'"+strings.ReplaceAll(uuidOf(r.id), "-", "")+"'"
	if db.postgres {
		number = "'" + uuidOf(r.id) + "'"
	}
	if r.kind != "" {
		kind = "'" + r.kind + "'"
	}
	db.exec(fmt.Sprintf("INSERT INTO shop.orders VALUES (%d, %s, '%s', %s, %s, 99.90, %s)", r.id, number, r.state, kind, db.boolean(r.hidden),
		strings.Join(db.times(r), ", ")))
}

func (db shopDatabase) boolean(b bool) string {
	if db.postgres || !b {
		return map[bool]string{true: "TRUE", false: "FALSE"}[b]
	}
	return "1"
}

// times returns the due time of a row as each of dueColumns has it.
func (db shopDatabase) times(r shopRow) (all []string) {
	wall, at, seconds, millis := r.wall, r.due.Format("2006-01-02 15:04:05.999999"), r.due.Unix(), r.due.UnixMilli()
	switch r.special {
	case never:
		wall, at, seconds, millis = never, zero, orderclose.NeverDue.Unix(), orderclose.NeverDue.UnixMilli()
	case null, zero:
		wall, at, seconds, millis = zero, zero, 0, 0
	}
	for _, column := range dueColumns[:6] {
		text := map[bool]string{true: wall, false: at}[column.Type == mapping.DateTime]
		switch {
		case r.special == null && (db.postgres || column.Column != "wall0"): // without NULL on MySQL
			all = append(all, "NULL")
		case db.postgres && r.special != "":
			all = append(all, map[string]string{never: "'infinity'", zero: "'-infinity'"}[r.special])
		case db.postgres:
			all = append(all, "'"+text+"+00'") // a column without a zone drops it
		default:
			all = append(all, "'"+text+"'")
		}
	}
	return append(all, fmt.Sprint(seconds), fmt.Sprint(millis))
}

// work changes the table while the connectors read its log.
func (db shopDatabase) work() {
	db.insert(inserted)
	var set []string
	for i, value := range db.times(moved) {
		set = append(set, dueColumns[i].Column+" = "+value)
	}
	db.exec("UPDATE shop.orders SET total = 89.90 WHERE id = 1", "UPDATE shop.orders SET "+strings.Join(set, ", ")+" WHERE id = 2",
		"UPDATE shop.orders SET state = 'paid' WHERE id = 3", "UPDATE shop.orders SET state = 'unpaid' WHERE id = 7", "DELETE FROM shop.orders WHERE id = 8")
}

// properties writes the properties of a connector, and returns the name of the file.
func (c connector) properties(t *testing.T, number int, prefix, port string) string {
	lines := append([]string{
		"name=" + c.name, "topic.prefix=" + prefix + "-" + c.name, "database.hostname=127.0.0.1", "database.port=" + port, "table.include.list=shop.orders",
		"topic.creation.default.replication.factor=1", "topic.creation.default.partitions=1",
		"key.converter=org.apache.kafka.connect.json.JsonConverter", "value.converter=org.apache.kafka.connect.json.JsonConverter",
	}, c.settings...)
	if c.server == "postgresql" {
		lines = append(lines, "connector.class=io.debezium.connector.postgresql.PostgresConnector", "plugin.name=pgoutput", "database.user=postgres",
			"database.dbname=postgres",
			fmt.Sprint("slot.name=slot", number), fmt.Sprint("publication.name=publication", number))
	} else {
		class := map[string]string{"mariadb": "mariadb.MariaDb", "mysql": "mysql.MySql"}[c.server]
		lines = append(lines, "connector.class=io.debezium.connector."+class+"Connector", "database.user=root", fmt.Sprint("database.server.id=", 100+number),
			"database.ssl.mode="+map[string]string{"mariadb": "disable", "mysql": "disabled"}[c.server],
			"schema.history.internal=io.debezium.storage.file.history.FileSchemaHistory", "schema.history.internal.file.filename="+filepath.Join(t.TempDir(), "history"),
			"include.schema.changes=false")
	}
	path := filepath.Join(t.TempDir(), c.name+".properties")
	must.Do(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return path
}

// readValues returns the values of a topic when it has as many.
func readValues(t *testing.T, c *kafka.Cluster, topic string, want int) (values []string) {
	t.Helper()
	end := int64(0)
	storetest.Await(t, fmt.Sprintf("%d records of %s", want, topic), func() (string, bool) {
		if _, known, err := c.Bounds(t.Context(), topic, 0); err == nil {
			end = known
		}
		return strconv.FormatInt(end, 10), end >= int64(want)
	})
	for at := int64(0); at < end; {
		records, next, err := reads.Log{Cluster: c}.ReadSome(t.Context(), topic, 0, at, end, 1<<20)
		must.Do(t, err)
		for _, r := range records {
			values = append(values, string(r.Value))
		}
		at = next
	}
	return values
}

// record writes the values to the file of the connector.
func (c connector) record(t *testing.T, values []string, prefix string) {
	text := ""
	for _, v := range values {
		text += strings.ReplaceAll(v, prefix, "test") + "\n"
	}
	must.Do(t, os.MkdirAll(filepath.Dir(c.file()), 0o755))
	must.Do(t, os.WriteFile(c.file(), []byte(text), 0o644))
}
