package realtest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// replicated is a primary with a standby, and the proxy by which all programs reach the primary.
type replicated struct {
	primary, standby *ownServer
	db               *sql.DB // of the standby, without the proxy
	proxy            *testkit.Proxy
	// follows counts the standbys for which the primary waits before it confirms a transaction.
	follows string
	// caughtUp counts the threads of the standby that have applied all that it received; empty: it applies the rest when it is promoted.
	caughtUp string
	stop     []string // statements by which the standby receives nothing more
	promoted []string // statements that make it a primary
}

// The primary is killed while orders are created, paid and closed, and the standby takes over. It has every transaction that
// the primary had confirmed, so every promise holds.
func TestReal_AFailoverToAStandbyThatHasAllLosesNothing(t *testing.T) {
	placementOf(t)
	t.Parallel()
	oneDatabaseAfterAnother(t, func(t *testing.T, s config.Servers, d database) {
		t.Parallel()
		start := newReplicatedPostgres
		if d == mariadb {
			start = func(t *testing.T) *replicated {
				return newReplicatedMariaDB(t, "--rpl-semi-sync-master-enabled=1", "--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=600000")
			}
		}
		f := start(t)
		r := f.rig(t, s)
		r.until("the primary waits for its standby", func() bool { return r.count(f.follows) == 1 })
		r.loadWith(scenario.Spec{Seed: 31, Orders: 300, Over: 12 * time.Second, Categories: categories}, func() {
			r.created(125)
			f.kill(t)
			f.promote()
		})
		r.settle()
		r.drain()
		v := r.check()
		expect.That(t, v.Paid != 0 && v.ByPath["pipeline"]+v.ByPath["sweep"] != 0, "%d paid, closed by path %v: the history is not whole", v.Paid, v.ByPath)
	})
}

// The standby lacks the last transactions that the primary had confirmed: orders, payments and closes. Orders whose
// close is missing are closed again, and the stock is right.
func TestReal_AFailoverToAStandbyThatIsBehindLeavesNoOrderOpen(t *testing.T) {
	s := realServers(t)
	t.Parallel()
	f := newReplicatedMariaDB(t)
	r := f.rig(t, s)
	lost := 0
	r.loadWith(scenario.Spec{Seed: 32, Orders: 300, Over: 12 * time.Second, Categories: categories}, func() {
		r.created(100)
		before := r.count("SELECT COUNT(*) FROM receipts")
		f.run(f.stop...)
		r.until("more orders are closed", func() bool { return r.count("SELECT COUNT(*) FROM receipts") > before+10 })
		lost = r.count("SELECT COUNT(*) FROM receipts")
		f.kill(t)
		kept := 0
		expect.NoError(t, f.db.QueryRow("SELECT COUNT(*) FROM "+r.database()+".receipts").Scan(&kept))
		lost -= kept
		f.promote()
	})
	r.settle()
	r.drain()
	r.stockIsRight()
	t.Logf("at least %d closes were missing after the failover", lost)
}

// rig returns a running pipeline whose shop and processes reach the database by the proxy.
func (f *replicated) rig(t *testing.T, s config.Servers) *rig {
	t.Helper()
	s.DSN = strings.ReplaceAll(f.primary.dsn(), f.primary.Addr(), f.proxy.Addr())
	r := newRig(t, s)
	r.disturbed = true
	r.useOutbox()
	r.start("relay", "closer", "compensator", "outbox")
	return r
}

// kill kills the primary, and returns when the standby has applied what it received.
func (f *replicated) kill(t *testing.T) {
	t.Helper()
	must.Do(t, f.primary.Kill())
	f.run(f.stop...)
	f.until(f.caughtUp)
}

// promote makes the standby the primary, for all programs.
func (f *replicated) promote() {
	f.run(f.promoted...)
	f.proxy.Redirect(f.standby.Addr())
}

func (f *replicated) run(statements ...string) {
	f.standby.t.Helper()
	for _, s := range statements {
		_, err := f.db.Exec(s)
		expect.That(f.standby.t, err == nil, "%s: %v", s, err)
	}
}

// until waits until a query on the standby counts something.
func (f *replicated) until(count string) {
	f.standby.t.Helper()
	if count == "" {
		return
	}
	await(f.standby.t, func() error {
		n := 0
		err := f.db.QueryRow(count).Scan(&n)
		if err == nil && n == 0 {
			err = fmt.Errorf("the standby counts nothing by %s", count)
		}
		return err
	})
}

// newReplicatedMariaDB starts two servers with MariaDB's replication. settings are those of the primary.
func newReplicatedMariaDB(t *testing.T, settings ...string) *replicated {
	t.Helper()
	const threads = "SELECT COUNT(*) FROM information_schema.processlist WHERE command = "
	binlog := []string{"--log-bin=binlog", "--binlog-format=ROW"}
	f := &replicated{
		primary:  newServer(t, "mariadb", append(append(binlog, "--server-id=1"), settings...)...),
		standby:  newServer(t, "mariadb", append(binlog, "--server-id=2", "--log-slave-updates=1", "--rpl-semi-sync-slave-enabled=1", "--read-only=1")...),
		follows:  "SELECT CAST(variable_value AS INT) FROM information_schema.global_status WHERE variable_name = 'RPL_SEMI_SYNC_MASTER_CLIENTS'",
		caughtUp: threads + "'Slave_SQL' AND state LIKE 'Slave has read all relay log%'",
		stop:     []string{"STOP SLAVE IO_THREAD"},
		promoted: []string{"STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0"},
	}
	f.primary.startNative()
	f.standby.startNative()
	f.open(t, "mysql")
	f.run(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='root', MASTER_USE_GTID=slave_pos", f.primary.Port), "START SLAVE")
	f.until(threads + "'Slave_IO' AND state LIKE 'Waiting for master to send event'")
	return f
}

// newReplicatedPostgres starts a primary that confirms nothing before its standby has it.
func newReplicatedPostgres(t *testing.T) *replicated {
	t.Helper()
	f := &replicated{
		primary:  newServer(t, "postgresql", "-c", "synchronous_standby_names=*"),
		standby:  newServer(t, "postgresql"),
		follows:  "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'",
		promoted: []string{"SELECT pg_promote()"}, // it applies what it has received
	}
	f.primary.startNative()
	f.standby.Env = append(f.standby.Env, "POSTGRESQL_PRIMARY="+f.primary.Port)
	f.standby.startNative()
	f.open(t, "pgx")
	f.until("SELECT COUNT(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'")
	return f
}

// open opens the proxy to the primary, and the standby's database.
func (f *replicated) open(t *testing.T, driver string) {
	t.Helper()
	var err error
	if f.proxy, err = testkit.NewProxy(f.primary.Addr()); err == nil {
		t.Cleanup(func() { f.proxy.Close() })
		f.db, err = sql.Open(driver, f.standby.dsn())
	}
	must.Do(t, err)
	t.Cleanup(func() { f.db.Close() })
}
