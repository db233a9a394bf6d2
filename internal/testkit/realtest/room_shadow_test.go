package realtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

func init() {
	placements["TestReal_AShadowRunBesideAnOldJob"] = placement{in: nowhere, on: onMariaDB,
		alone: "TestReport_ComparesAShadowRunWithTheOldJob, and the part shadow of TestReal_EachPartNeedsItsPrivileges"}
}

// A team runs a relay and a shadow run beside the job that closes its orders. The processes may only
// read the shop's tables, and the database has no other table. The report has each difference.
func TestReal_AShadowRunBesideAnOldJob(t *testing.T) {
	s := realServers(t)
	t.Parallel()
	o := newShopTables(t, s)
	o.useZone("+08:00") // of the mapping
	o.mayOnlyRead()
	o.exec("INSERT INTO t_goods_stock VALUES (7, 1000, 0)")
	o.start("relay", "shadow")

	lines := o.checkout(1, 9, 3) // and due a minute ago: 9, whose record was never sent, and the forgotten 3
	o.checkout(9, 10, -60)
	o.exec("UPDATE t_order SET pay_deadline = pay_deadline - INTERVAL 1 MINUTE WHERE id = 3")
	o.exec("UPDATE t_order SET state = 'PAID' WHERE id IN (5, 8)")
	o.exec("UPDATE t_order SET state = 'CANCELLED' WHERE id = 7")
	o.exec("UPDATE t_order SET state = 'CLOSED', finish_time = pay_deadline - INTERVAL 2 MINUTE WHERE id = 6") // too early
	defer o.oldJob()()
	o.send(lines)

	type summary struct {
		Orders   int            `json:"orders"`
		Classes  map[string]int `json:"classes"`
		OnlyWe   map[string]int `json:"only_we"`
		OnlyThey map[string]int `json:"only_they"`
		Verdicts int            `json:"verdicts"`
	}
	var report struct{ Summary summary }
	read := func() (code int) {
		var out string
		if out, code = o.cli("shadow", "report", "--from", "10m", "--tolerance", "30s", "-o", "json"); out == "" {
			return code
		}
		report.Summary = summary{}
		o.decode(out, &report)
		return code
	}
	o.until("a verdict on each record", func() bool { read(); return report.Summary.Verdicts == 8 })
	o.exec("UPDATE t_order SET state = 'PAID' WHERE id = 4")                        // later than allowed
	o.exec("UPDATE t_order SET state = 'CLOSED', finish_time = NOW() WHERE id = 5") // the old job overwrites a payment
	o.until("the old job", func() bool {
		return o.count("SELECT COUNT(*) FROM t_order WHERE state = 'CLOSED' AND id IN (1, 2, 9)") == 3
	})
	code := read()
	sum := report.Summary
	var status struct {
		ops.Status
		Verdict ops.Verdict
	}
	out, _ := o.cli("status", "-o", "json")
	if o.decode(out, &status); !slices.ContainsFunc(status.Topics, func(t ops.TopicStatus) bool {
		return t.Group == o.cfg.Group("shadow", o.cfg.Topics.Close) && t.Waiting == 0
	}) || status.Verdict.State == ops.ActNow {
		t.Errorf("status does not know that a shadow run reads the close topic: %s", out)
	}
	if diff := cmp.Diff(map[string]int{"same": 1, "earlier": 1, "later": 1, "only_we": 2, "only_they": 2, "neither": 2}, sum.Classes); diff != "" ||
		code != 3 || sum.Orders != 9 {
		out, _ := o.cli("shadow", "report", "--from", "10m", "--tolerance", "30s")
		t.Errorf("exit %d (-want +got):\n%s\n%s", code, diff, out)
	}
	if diff := cmp.Diff([]map[string]int{{"WAIT_PAY": 1, "PAID": 1}, {"already_paid": 1, "no_record": 1}},
		[]map[string]int{sum.OnlyWe, sum.OnlyThey}); diff != "" {
		t.Errorf("only we, only they (-want +got):\n%s", diff)
	}
	o.nothingOfOurs()
}

// useZone makes the shop's sessions use a time zone.
func (o *ownTables) useZone(zone string) {
	o.t.Helper()
	cfg := must.Get(mysql.ParseDSN(o.servers.DSN))(o.t)
	cfg.Params = map[string]string{"time_zone": "'" + zone + "'"}
	o.db = must.Get(sql.Open("mysql", cfg.FormatDSN()))(o.t)
	o.t.Cleanup(func() { o.db.Close() })
}

// mayOnlyRead makes the processes use a database user that has SELECT on the shop's tables only.
func (o *ownTables) mayOnlyRead() {
	o.t.Helper()
	cfg := must.Get(mysql.ParseDSN(o.servers.DSN))(o.t)
	user := "oc_" + strings.ToLower(rand.Text()[:16])
	o.exec("CREATE USER " + user + "@'%'")
	o.t.Cleanup(func() { o.db.Exec("DROP USER " + user + "@'%'") })
	for _, table := range []string{"t_order", "t_order_line", "t_goods_stock"} {
		o.exec("GRANT SELECT ON " + cfg.DBName + "." + table + " TO " + user + "@'%'")
	}
	cfg.User, cfg.Passwd = user, ""
	o.servers.DSN = cfg.FormatDSN()
}

// oldJob closes orders two seconds after their due time until stop is called. It forgets order 3,
// does not see order 4, and takes two minutes for order 2.
func (o *ownTables) oldJob() (stop func()) {
	ctx, cancel := context.WithCancel(o.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		scenario.Every(ctx, 100*time.Millisecond, func() {
			if _, err := o.db.ExecContext(ctx, "UPDATE t_order SET state = 'CLOSED', finish_time = pay_deadline + INTERVAL IF(id = 2, 120, 2) SECOND"+
				" WHERE state = 'WAIT_PAY' AND pay_deadline <= NOW() - INTERVAL 2 SECOND AND id NOT IN (3, 4)"); err != nil && ctx.Err() == nil {
				o.t.Error(err)
			}
		})
	}()
	return func() { cancel(); <-ended }
}

// nothingOfOurs checks that the shadow run wrote nothing but its verdicts.
func (o *ownTables) nothingOfOurs() {
	o.t.Helper()
	for what, query := range map[string]string{
		"tables besides the shop's": "SELECT COUNT(*) - 3 FROM information_schema.tables WHERE table_schema = DATABASE()",
		"stock that moved":          "SELECT ABS(free - 982) + ABS(held - 18) FROM t_goods_stock",
		"orders in another state": "SELECT COUNT(*) FROM t_order WHERE state <> ELT(id, 'CLOSED', 'CLOSED', 'WAIT_PAY', 'PAID', 'CLOSED', 'CLOSED', " +
			"'CANCELLED', 'PAID', 'CLOSED')",
		"orders that the old job has no": "SELECT COUNT(*) FROM t_order WHERE state = 'CLOSED' AND id <> 5 AND finish_time <> pay_deadline + INTERVAL ELT(id, 2, " +
			"120, 0, 0, 0, -120, 0, 0, 2) SECOND",
	} {
		expect.Equal(o.t, o.count(query), 0, "%s", what)
	}
	log := o.logs.Tail(1 << 20)
	expect.That(o.t, !strings.Contains(log, "denied"), "a process tried to write:\n%s", log)
	topics := o.cfg.Topics
	for _, topic := range []string{topics.DeadLetter, topics.Events} {
		if _, end, err := o.kafka.Bounds(o.t.Context(), topic, 0); err != nil || end > 0 {
			o.t.Errorf("%s has %d records, %v", topic, end, err)
		}
	}
}
