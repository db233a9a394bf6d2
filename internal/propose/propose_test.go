package propose

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// shop is a random schema with its rows, and what is right for it.
type shop struct {
	r              *rand.Rand
	postgres       bool
	table, lines   string
	tables, insert []string

	status, created, due   string
	unpaid, closed         string // as topics.yaml has them
	zone                   time.Duration
	delay                  time.Duration
	kind                   mapping.TimeType
	labelled, worded, paid bool // whether comments or words say what values mean; whether there is a time of payment
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// newShop draws a schema: styles of names, kinds of statuses and times, lines and stock, and tables that are no orders.
func newShop(seed uint64, postgres bool) *shop {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &shop{r: r, postgres: postgres, paid: r.IntN(4) > 0}
	s.delay, s.zone = pick(r, 10*time.Minute, 30*time.Minute, 2*time.Hour), pick(r, 0, 8*time.Hour, 5*time.Hour+30*time.Minute)
	prefix := pick(r, "", "t_", "shop_", "oms_")
	s.table, s.lines = prefix+pick(r, "order", "orders", "order_info", "booking"), prefix+pick(r, "order_item", "order_goods", "order_line")
	if strings.HasSuffix(s.table, "booking") {
		s.lines = prefix + "booking_item"
	}
	camel := r.IntN(4) == 0
	style := func(name string) string {
		if !camel {
			return name
		}
		parts := strings.Split(name, "_")
		for i := range parts[1:] {
			parts[i+1] = strings.ToUpper(parts[i+1][:1]) + parts[i+1][1:]
		}
		return strings.Join(parts, "")
	}
	s.created = style(pick(r, "create_time", "created_at", "add_time", "gmt_create"))
	s.status = style(pick(r, "status", "order_status", "state"))
	if r.IntN(3) == 0 {
		s.due = style(pick(r, "expire_time", "pay_deadline", "expires_at"))
	}
	times := []string{"DATETIME", "TIMESTAMP", "INT", "BIGINT"}
	kinds := []mapping.TimeType{mapping.DateTime, mapping.Timestamp, mapping.UnixSeconds, mapping.UnixMillis}
	if postgres {
		times, kinds[1] = []string{"timestamp(0)", "timestamptz", "integer", "bigint"}, mapping.TimestampTZ
	}
	k := r.IntN(len(kinds))
	s.kind = kinds[k]
	type meaningOfValue struct{ value, label string }
	values := []meaningOfValue{{"0", "unpaid"}, {"1", "paid"}, {"2", "shipped"}, {"9", "cancelled"}}
	statusType, comment := pick(r, "TINYINT", "INT"), ""
	if postgres {
		statusType = "integer"
	}
	switch r.IntN(3) {
	case 0:
		statusType, s.worded = "VARCHAR(20)", true
		values = []meaningOfValue{{value: pick(r, "WAIT_PAY", "unpaid", "pending_payment")}, {value: "paid"}, {value: "shipped"},
			{value: pick(r, "CLOSED", "cancelled", "expired")}}
	case 1:
		s.labelled = true
		labels := pick(r, []string{"待付款", "已支付", "已发货", "已取消"}, []string{"unpaid", "paid", "shipped", "closed by timeout"})
		sep, between := pick(r, ":", "-", "=", "->"), pick(r, ",", "；", " ", "、")
		for i, l := range labels {
			values[i].label = l
			comment += values[i].value + sep + l + between
		}
	}
	s.unpaid, s.closed = values[0].value, values[3].value
	quoted := func(name string) string { return mapping.Quote(name) }
	id := style("id")
	key := quoted(id) + " BIGINT PRIMARY KEY, "
	columns := fmt.Sprintf("%s%s BIGINT, %s DECIMAL(10,2), %s %s NOT NULL", key, quoted(style("user_id")), quoted(style("total_amount")), quoted(s.status),
		statusType)
	if comment != "" && !postgres {
		columns += " COMMENT '" + comment + "'"
	}
	columns += fmt.Sprintf(", %s %s NULL", quoted(s.created), times[k])
	if s.due != "" {
		columns += fmt.Sprintf(", %s %s NULL", quoted(s.due), times[k])
	}
	if s.paid {
		columns += fmt.Sprintf(", %s %s NULL", quoted(style("pay_time")), times[k])
	}
	s.tables = append(s.tables, fmt.Sprintf("CREATE TABLE %s (%s)", quoted(s.table), columns))
	if comment != "" && postgres {
		s.tables = append(s.tables, fmt.Sprintf("COMMENT ON COLUMN %s.%s IS '%s'", quoted(s.table), quoted(s.status), comment))
	}
	ref := style("order_id")
	if strings.HasSuffix(s.table, "booking") {
		ref = style("booking_id")
	}
	create := func(table, columns string) {
		s.tables = append(s.tables, "CREATE TABLE "+quoted(table)+" ("+key+columns+")")
	}
	create(s.lines, quoted(ref)+" BIGINT NOT NULL, "+quoted(style("sku_id"))+" BIGINT NOT NULL, quantity INT NOT NULL")
	create(prefix+"sku", "stock INT NOT NULL, "+quoted(style("lock_stock"))+" INT NOT NULL")
	for _, other := range []string{prefix + "cart", prefix + "order_refund", s.table + "_log"} { // which are no orders
		create(other, quoted(ref)+" BIGINT, "+quoted(s.status)+" "+statusType+" NOT NULL, "+quoted(s.created)+" "+times[k]+" NULL")
	}
	now := time.Now()
	at := func(ago time.Duration) string {
		t := now.Add(-ago)
		switch s.kind {
		case mapping.UnixSeconds:
			return fmt.Sprint(t.Unix())
		case mapping.UnixMillis:
			return fmt.Sprint(t.UnixMilli())
		case mapping.DateTime:
			t = t.Add(s.zone)
		case mapping.TimestampTZ:
			return t.UTC().Format("'2006-01-02 15:04:05+00'")
		}
		return t.UTC().Format("'2006-01-02 15:04:05'")
	}
	for n := range 300 {
		ago, status := time.Duration(300-n)*3*time.Hour, pick(r, 1, 2, 2, 3)
		if n >= 220 { // the newest wait for their payment
			ago, status = time.Duration(300-n)*s.delay/81, 0
		}
		row := fmt.Sprintf("%d, %d, 9.90, '%s', %s", n+1, r.IntN(50), values[status].value, at(ago))
		if s.due != "" {
			row += ", " + at(ago-s.delay)
		}
		if s.paid {
			row += ", " + map[bool]string{true: at(ago - time.Minute), false: "NULL"}[status == 1 || status == 2]
		}
		s.insert = append(s.insert, fmt.Sprintf("INSERT INTO %s VALUES (%s)", quoted(s.table), row))
		s.insert = append(s.insert, fmt.Sprintf("INSERT INTO %s VALUES (%d, %d, %d, 1)", quoted(s.lines), n+1, n+1, 1+r.IntN(20)))
	}
	for n := range 20 {
		s.insert = append(s.insert, fmt.Sprintf("INSERT INTO %s VALUES (%d, 100, 5)", quoted(prefix+"sku"), n+1))
	}
	return s
}

func (s *shop) fill(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	for _, statement := range slices.Concat(s.tables, s.insert) {
		if err == nil {
			_, err = tx.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// servers are the DSNs of the real servers that the environment names.
func servers(t *testing.T) map[string]string {
	all := map[string]string{}
	for name, variable := range map[string]string{"mariadb": "ORDERCLOSE_DB_DSN", "mysql": "ORDERCLOSE_MYSQL_DSN", "postgres": "ORDERCLOSE_POSTGRES_DSN"} {
		if dsn := os.Getenv(variable); dsn != "" {
			all[name] = dsn
		}
	}
	if len(all) == 0 {
		t.Skip("no server is named: make test starts some")
	}
	return all
}

func seeds() int {
	if ring.All() {
		return 60
	}
	return 6
}

// TestPropose_RandomSchemasAreReadRightOrAsked: a proposal never closes what is paid or not due, and what it does not know it asks.
func TestPropose_RandomSchemasAreReadRightOrAsked(t *testing.T) {
	for name, server := range servers(t) {
		for seed := range uint64(seeds()) {
			s := newShop(seed, name == "postgres")
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				st := must.Get(store.Open(store.Options{DSN: storetest.NewDatabase(t, server)}))(t)
				defer st.Close()
				must.Do(t, s.fill(t.Context(), st.DB()))
				f := must.Get(Read(t.Context(), st, "", ""))(t)
				defer f.Close()
				p, asked := f.Propose(Answers{}), []string{}
				var a Answers
				for range 6 {
					if len(p.Questions) == 0 {
						break
					}
					q := p.Questions[0]
					asked = append(asked, q.Flag)
					s.answer(q.Flag, &a)
					p = f.Propose(a)
				}
				if p.YAML == "" {
					t.Fatalf("no proposal after %v: %s %v\n%v", asked, p.Refused, p.Questions, s.tables)
				}
				s.judge(t, p, asked)
				preview := must.Get(f.Preview(t.Context(), p))(t)
				now, later := preview.Rows[0].Orders, preview.Rows[1].Orders
				expect.That(t, now == 0 && later == 80, "the first sweep would close %d, and %d later:\n%s", now, later, p.YAML)
			})
		}
	}
}

func (s *shop) answer(flag string, a *Answers) {
	switch flag {
	case "table":
		a.Table = s.table
	case "unpaid":
		a.Unpaid = s.unpaid
	case "closed":
		a.Closed = s.closed
	case "zone":
		a.Zone = zoneName(s.zone)
	case "delay":
		a.Delay = s.delay
	case "stock":
		a.Stock = "placed"
	case "due":
		a.Due = cmp.Or(s.due, "none")
	}
}

func (s *shop) judge(t *testing.T, p *Proposal, asked []string) {
	cfg := must.Get(config.Parse("topics.yaml", []byte(p.YAML), config.WithoutKafka()))(t)
	m := cfg.Orders
	expect.Equal(t, m.Orders, s.table, "the table of orders")
	expect.Equal(t, fmt.Sprint(m.Status.From), s.shown(s.unpaid), "the status of unpaid orders")
	expect.Equal(t, fmt.Sprint(m.Status.To), s.shown(s.closed), "the status of closed orders")
	due := s.created
	if s.due != "" {
		due = s.due
	} else {
		expect.Equal(t, cfg.Delays.Default, s.delay, "the delay")
	}
	expect.Equal(t, m.Due.Column, due, "the due column")
	expect.Equal(t, m.Due.Type, s.kind, "its type")
	if s.kind == mapping.DateTime {
		loc := must.Get(mapping.ParseZone(m.Due.Zone))(t)
		_, offset := time.Now().In(loc).Zone()
		expect.Equal(t, time.Duration(offset)*time.Second, s.zone, "the zone")
	}
	expect.That(t, m.Items != nil && m.Items.Table == s.lines && len(m.Stock) == 1 && m.Stock[0].Reserved != "", "lines and stock: %s", p.YAML)
	for _, known := range []string{"table", "unpaid", "closed", "delay"} {
		if s.labelled && !s.postgres || s.worded {
			expect.That(t, !slices.Contains(asked, known), "--%s is asked, and the database tells it", known)
		}
	}
}

func (s *shop) shown(value string) string {
	if s.worded {
		return fmt.Sprintf("%q", value)
	}
	return value
}
