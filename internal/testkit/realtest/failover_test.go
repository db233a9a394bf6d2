package realtest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// The standby lacks the last transactions that the primary had confirmed: orders, payments and closes. Orders whose
// close is missing are closed again, and the stock is right.
func TestReal_AFailoverToAStandbyThatIsBehindLeavesNoOrderOpen(t *testing.T) {
	s := realServers(t)
	t.Parallel()
	binlog := []string{"--log-bin=binlog", "--binlog-format=ROW"}
	primary := newServer(t, "mariadb", append(binlog, "--server-id=1")...)
	standby := newServer(t, "mariadb", append(binlog, "--server-id=2", "--log-slave-updates=1", "--read-only=1")...)
	primary.startNative()
	standby.startNative()
	proxy := must.Get(testkit.NewProxy(primary.Addr()))(t)
	t.Cleanup(func() { proxy.Close() })
	db := must.Get(sql.Open("mysql", standby.dsn()))(t)
	defer db.Close()
	run := func(statements ...string) {
		for _, s := range statements {
			must.Get(db.Exec(s))(t)
		}
	}
	until := func(thread string) {
		await(t, func() error {
			n := 0
			err := db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE command = " + thread).Scan(&n)
			if err == nil && n == 0 {
				err = fmt.Errorf("the standby has no thread %s", thread)
			}
			return err
		})
	}
	run(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='root', MASTER_USE_GTID=slave_pos", primary.Port), "START SLAVE")
	until("'Slave_IO' AND state LIKE 'Waiting for master to send event'")

	s.DSN = strings.ReplaceAll(primary.dsn(), primary.Addr(), proxy.Addr())
	r := newRig(t, s)
	r.disturbed = true
	r.useOutbox()
	r.start("relay", "closer", "compensator", "outbox")
	lost := 0
	r.loadWith(scenario.Spec{Seed: 32, Orders: 300, Over: 12 * time.Second, Categories: categories}, func() {
		r.created(100)
		before := r.count("SELECT COUNT(*) FROM receipts")
		run("STOP SLAVE IO_THREAD")
		r.until("more orders are closed", func() bool { return r.count("SELECT COUNT(*) FROM receipts") > before+10 })
		lost = r.count("SELECT COUNT(*) FROM receipts")
		must.Do(t, primary.Kill())
		until("'Slave_SQL' AND state LIKE 'Slave has read all relay log%'")
		kept := 0
		expect.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+r.database()+".receipts").Scan(&kept))
		lost -= kept
		run("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
		proxy.Redirect(standby.Addr())
	})
	r.settle()
	r.drain()
	r.stockIsRight()
	t.Logf("at least %d closes were missing after the failover", lost)
}
