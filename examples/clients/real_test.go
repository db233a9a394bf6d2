package clients

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/servers"
	"github.com/orderclose/orderclose/internal/wire"
)

// driver runs a client against real servers, in New York, which shows a time that is not in UTC. testdata has the drivers.
type driver struct {
	command []string
	env     []string
	serves  func(port string) []string // nil: the command serve
}

func (d driver) cmd(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.command[0], append(d.command[1:len(d.command):len(d.command)], args...)...)
	cmd.Env = append(os.Environ(), append(d.env, "TZ=America/New_York", "SECRET="+secret)...)
	return cmd
}

func (d driver) run(t *testing.T, env []string, stdin string, args ...string) error {
	cmd := d.cmd(t.Context(), args...)
	cmd.Env, cmd.Stdin = append(cmd.Env, env...), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w\n%s", args, err, out)
	}
	return nil
}

// installed returns the folder of what deploy/native/install.sh has installed.
func installed(parts ...string) string {
	cache, _ := os.UserCacheDir()
	return filepath.Join(append([]string{cache, "orderclose"}, parts...)...)
}

// drivers return the driver of a language. They skip the test if something is missing, and say what.
var drivers = map[string]func(t *testing.T) driver{
	"java": func(t *testing.T) driver {
		libs, _ := filepath.Glob(installed("kafka-4.1.0", "libs", "*.jar"))
		jdbc, _ := filepath.Glob(installed("jdbc-*", "*.jar"))
		dir := t.TempDir()
		class := strings.Join(append(append(libs, jdbc...), dir), ":")
		switch _, err := exec.LookPath("javac"); {
		case err != nil:
			t.Skip("javac is not installed")
		case len(libs) == 0:
			t.Skip("kafka-clients is missing: deploy/native/install.sh kafka")
		case len(jdbc) == 0:
			t.Skip("the JDBC drivers are missing: deploy/native/install.sh jdbc")
		}
		sources := []string{"java/Orders.java", "java/Direct.java", "testdata/Driver.java"}
		out, err := exec.CommandContext(t.Context(), "javac", append([]string{"-cp", class, "-d", dir}, sources...)...).CombinedOutput()
		must.That(t, err == nil, "%v\n%s", err, out)
		return driver{command: []string{"java", "-XX:TieredStopAtLevel=1", "-cp", class, "Driver"}}
	},
	"node": func(t *testing.T) driver {
		env := []string{"NODE_PATH=" + installed("clients", "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING=1"}
		needs(t, driver{command: []string{"node"}, env: env}, "kafkajs or mysql2", "-e", "require('kafkajs'), require('mysql2/promise')")
		return driver{command: []string{"node", "testdata/driver.mjs"}, env: env}
	},
	"php": func(t *testing.T) driver {
		php := []string{"php", "-d", "date.timezone=America/New_York"}
		needs(t, driver{command: php}, "pdo_mysql", "-r", "exit(extension_loaded('pdo_mysql') ? 0 : 1);")
		return driver{command: append(php, "testdata/driver.php"), serves: func(port string) []string {
			return append(php, "-S", "127.0.0.1:"+port, "testdata/driver.php")
		}}
	},
	"python": func(t *testing.T) driver {
		python := installed("clients", "bin", "python3")
		if _, err := os.Stat(python); err != nil {
			python = "python3"
		}
		needs(t, driver{command: []string{python}}, "confluent-kafka or PyMySQL", "-c", "import confluent_kafka, pymysql")
		return driver{command: []string{python, "testdata/driver.py"}}
	},
}

// needs skips the test if a language or its libraries are missing.
func needs(t *testing.T, d driver, libraries string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(d.command[0]); err != nil {
		t.Skipf("%s is not installed", d.command[0])
	}
	if d.run(t, nil, "", args...) != nil {
		t.Skipf("%s has no %s: deploy/native/install.sh clients", d.command[0], libraries)
	}
}

func TestReal_Clients(t *testing.T) {
	broker := startBroker(t)
	for language, newDriver := range drivers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			d := newDriver(t)
			for kind, variable := range map[string]string{"mariadb": "ORDERCLOSE_DB_DSN", "mysql": "ORDERCLOSE_MYSQL_DSN"} {
				t.Run(kind, func(t *testing.T) {
					if os.Getenv(variable) == "" {
						t.Skipf("%s names no server", variable)
					}
					db, env := shop(t, kind, os.Getenv(variable))
					insertsAnOrder(t, d, db, env)
					handlesAnEventOnce(t, d, db, env)
				})
			}
			t.Run("kafka", func(t *testing.T) { sendsRecords(t, d, language, broker) })
			t.Run("http", func(t *testing.T) { closesOrders(t, d) })
		})
	}
}

// shop returns a database with the reference schema, and the variables that name it for drivers.
func shop(t *testing.T, kind, server string) (*sql.DB, []string) {
	dsn, drop, err := scenario.CreateDatabase(t.Context(), server, nil, fmt.Sprintf("clients_%d", rand.Uint32()))
	must.Do(t, err)
	t.Cleanup(func() { _ = drop(context.Background()) })
	s := must.Get(store.Open(store.Options{DSN: dsn}))(t)
	t.Cleanup(func() { _ = s.Close() })
	err = s.Migrate(t.Context())
	for _, statement := range []string{
		"INSERT INTO stock (sku_id, available, reserved) VALUES ('a', 10, 0), ('b', 10, 0)",
		"CREATE TABLE handled_events (id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY)", "CREATE TABLE work (order_id VARCHAR(64))",
	} {
		if err == nil {
			_, err = s.DB().ExecContext(t.Context(), statement)
		}
	}
	cfg, wrong := mysql.ParseDSN(dsn)
	must.Do(t, errors.Join(err, wrong))
	_, port, _ := net.SplitHostPort(cfg.Addr)
	return s.DB(), []string{"DB_PORT=" + port, "DB_NAME=" + cfg.DBName, "JDBC_URL=jdbc:" + kind + "://" + cfg.Addr + "/" +
		cfg.DBName + map[string]string{"mysql": "?sslMode=DISABLED&allowPublicKeyRetrieval=true"}[kind]}
}

func insertsAnOrder(t *testing.T, d driver, db *sql.DB, env []string) {
	must.Do(t, d.run(t, env, "", "insert", "o-1", "2"))
	expect.Says(t, d.run(t, env, "", "insert", "o-2", "9"), "not enough of b", "an order of more than there is")
	var id, due, stock string
	var payload []byte
	var age, delay int
	err := db.QueryRowContext(t.Context(), `SELECT o.id, DATE_FORMAT(o.expire_at, '%Y-%m-%dT%H:%i:%s.%fZ'), 
		TIMESTAMPDIFF(SECOND, o.created_at, UTC_TIMESTAMP(3)), TIMESTAMPDIFF(SECOND, o.created_at, o.expire_at),
		(SELECT payload FROM outbox_schedules), (SELECT GROUP_CONCAT(sku_id, quantity, available, reserved ORDER BY sku_id)
		FROM stock JOIN order_items USING (sku_id)) FROM orders o`).Scan(&id, &due, &age, &delay, &payload, &stock)
	expect.That(t, err == nil && id == "o-1" && age >= 0 && age <= 60 && delay == 300 && stock == "a191,b282",
		"order %s, %d s old, delay %d s, stock %s, %v", id, age, delay, stock, err)
	var record struct {
		OrderID string    `json:"order_id"`
		DueAt   time.Time `json:"due_at"`
	}
	err = json.Unmarshal(payload, &record)
	at, wrong := time.Parse(time.RFC3339, due)
	expect.That(t, err == nil && wrong == nil && record.OrderID == id && record.DueAt.Equal(at), "%s: due at %s in the row, %v %v", payload, due, err, wrong)
	m, _, err := wire.OutboxRow{OrderID: id, Payload: payload}.Schedule()
	if err == nil {
		_, err = m.Decode()
	}
	expect.That(t, err == nil, "%s: %v", payload, err)
}

// sentRecords returns how many records of a topic are of orders whose ids begin so. It checks that relay and closer can read all records.
func sentRecords(t *testing.T, broker, topic, id string) (n int) {
	t.Helper()
	cluster := must.Get(kafka.New(kafka.Options{Brokers: []string{broker}}))(t)
	defer cluster.Close()
	for _, s := range must.Get(reads.Log{Cluster: cluster}.Window(t.Context(), topic, kafka.LogStart, kafka.LogEnd))(t) {
		must.Do(t, reads.Log{Cluster: cluster}.ReadSpan(t.Context(), topic, s, func(records []wire.RawRecord) error {
			for _, r := range records {
				m := must.Get(r.Message())(t)
				read, err := m.Decode()
				due := orderclose.CeilMilli(read.Order.Due)
				expect.That(t, err == nil && read.Release.Sub(due).Abs() <= time.Millisecond,
					"in partition %d: %+v, %v", s.Partition, m, err)
				if strings.HasPrefix(string(m.Key), id) {
					n++
				}
			}
			return nil
		}))
	}
	return n
}

// A driver lets the work fail, and then handles the event twice. The first time the transaction loses a conflict.
func handlesAnEventOnce(t *testing.T, d driver, db *sql.DB, env []string) {
	const event = `{"specversion":"1.0","id":"order.closed/o-1","type":"order.closed","data":{"order_id":"o-1"}}`
	must.Do(t, d.run(t, env, event, "handle"))
	var work, handled int
	err := db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM work), (SELECT COUNT(*) FROM handled_events)").Scan(&work, &handled)
	expect.That(t, err == nil && work == 1 && handled == 1, "work done %d times, %d handled events, %v", work, handled, err)
}

// startBroker starts a broker of its own, because the topics of the examples have no prefix. It returns "" without real servers.
func startBroker(t *testing.T) string {
	if os.Getenv("ORDERCLOSE_KAFKA_BROKERS") == "" || os.Getenv("ORDERCLOSE_SERVERS") == "containers" {
		return ""
	}
	broker := must.Get(servers.New("kafka", filepath.Join(t.TempDir(), "kafka")))(t)
	t.Cleanup(func() { _ = broker.Kill() })
	err := broker.Start(t.Context())
	if err != nil && os.Getenv("REQUIRE_REAL") != "1" {
		return ""
	}
	must.Do(t, err)
	cluster := must.Get(kafka.New(kafka.Options{Brokers: []string{broker.Addr()}}))(t)
	defer cluster.Close()
	_, _, err = cluster.Apply(t.Context(), []kafka.TopicSpec{{Name: "delay_5m", Partitions: 12, Replication: 1, Retention: time.Hour, BrokerTime: true}})
	must.Do(t, err)
	return broker.Addr()
}

func sendsRecords(t *testing.T, d driver, language, broker string) {
	switch {
	case broker == "":
		t.Skip("ORDERCLOSE_KAFKA_BROKERS names no native broker")
	case language == "php":
		t.Skip("php-rdkafka is no package of Debian: TestClients checks the record")
	}
	var ids string
	for attempt := 1; ; attempt++ { // a client gives up after 5 s, which a busy machine may need
		ids = fmt.Sprintf("%s-%d", language, attempt)
		err := d.run(t, []string{"BROKERS=" + broker}, "", "send", ids, "25")
		if err == nil {
			break
		}
		must.That(t, attempt < 5, "%v", err)
	}
	expect.Equal(t, sentRecords(t, broker, "delay_5m", ids+"-"), 25, "records")
}

// closesOrders lets a closer send requests to the client, once with a secret that the client does not have.
func closesOrders(t *testing.T, d driver) {
	port := must.Get(servers.FreePort())(t)
	args := []string{"serve", port}
	if d.serves != nil {
		d.command, args = d.serves(port), nil
	}
	service := d.cmd(t.Context(), args...)
	must.Do(t, service.Start())
	defer func() { _, _ = service.Process.Kill(), service.Wait() }()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
			break
		}
		must.That(t, time.Now().Before(deadline), "%v", err)
	}
	for _, c := range []struct {
		secrets []string
		ok      bool
	}{{[]string{otherSecret, secret}, true}, {[]string{otherSecret}, false}} {
		closes, err := httpclose.New(httpclose.Options{URL: "http://127.0.0.1:" + port + "/close", Secrets: c.secrets})
		must.Do(t, err)
		var outcomes []orderclose.Outcome
		for range 10 { // a cold service may be too slow for the first request
			outcomes, err = closes.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "o-1", Due: time.Now()}, {OrderID: "订单-17"}})
			if err == nil || !c.ok {
				break
			}
		}
		closed := err == nil && len(outcomes) == 2 && outcomes[1].OrderID == "订单-17" && outcomes[0].Verdict == orderclose.Closed
		expect.That(t, closed == c.ok, "closed %v: %+v %v", closed, outcomes, err)
		_ = closes.Close()
	}
}
