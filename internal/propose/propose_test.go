package propose

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
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
	humps := regexp.MustCompile(pick(r, "_.", "^$", "^$", "^$")) // one of four has orderId
	style := func(name string) string {
		return humps.ReplaceAllStringFunc(name, func(s string) string { return strings.ToUpper(s[1:]) })
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
	values := []string{"0", "1", "2", "9"}
	statusType, comment := map[bool]string{true: "integer", false: pick(r, "TINYINT", "INT")}[postgres], ""
	switch r.IntN(3) {
	case 0:
		statusType, s.worded = "VARCHAR(20)", true
		values = []string{pick(r, "WAIT_PAY", "unpaid", "pending_payment"), "paid", "shipped", pick(r, "CLOSED", "cancelled", "expired")}
	case 1:
		s.labelled = true
		labels := pick(r, []string{"待付款", "已支付", "已发货", "已取消"}, []string{"unpaid", "paid", "shipped", "closed by timeout"})
		sep, between := pick(r, ":", "-", "=", "->"), pick(r, ",", "；", " ", "、")
		for i, l := range labels {
			comment += values[i] + sep + l + between
		}
	}
	s.unpaid, s.closed = values[0], values[3]
	quoted := mapping.Quote
	key := "id BIGINT PRIMARY KEY, "
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
		ref, s.lines = style("booking_id"), prefix+"booking_item"
	}
	create := func(table, columns string) {
		s.tables = append(s.tables, "CREATE TABLE "+quoted(table)+" ("+key+columns+")")
	}
	create(s.lines, quoted(ref)+" BIGINT NOT NULL, "+quoted(style("sku_id"))+" BIGINT NOT NULL, quantity INT NOT NULL")
	create(prefix+"sku", "stock INT NOT NULL, "+quoted(style("lock_stock"))+" INT NOT NULL")
	for _, other := range []string{prefix + "cart", prefix + "order_refund", s.table + "_log"} { // which are no orders
		create(other, quoted(ref)+" BIGINT, "+quoted(s.status)+" "+statusType+" NOT NULL, "+quoted(s.created)+" "+times[k]+" NULL")
	}
	at := func(ago time.Duration) string {
		t := time.Now().Add(-ago)
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
	for n := range 340 {
		ago, status := time.Duration(340-n)*3*time.Hour, pick(r, 1, 2, 2, 3)
		if n >= 220 { // the newest wait for their payment
			ago, status = time.Duration(340-n)*s.delay/121, 0
		}
		row := fmt.Sprintf("%d, %d, 9.90, '%s', %s", n+1, r.IntN(50), values[status], at(ago))
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

// open fills a new database, and reads it.
func open(t *testing.T, server, table string, statements []string) *Facts {
	st := must.Get(store.Open(store.Options{DSN: storetest.NewDatabase(t, server)}))(t)
	t.Cleanup(func() { _ = st.Close() })
	tx := must.Get(st.DB().BeginTx(t.Context(), nil))(t)
	for _, statement := range statements {
		must.Get(tx.ExecContext(t.Context(), statement))(t)
	}
	must.Do(t, tx.Commit())
	return must.Get(Read(t.Context(), st, table, ""))(t)
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

// TestPropose_RandomSchemasAreReadRightOrAsked: a proposal never closes what is paid or not due, and what it does not know it asks.
func TestPropose_RandomSchemasAreReadRightOrAsked(t *testing.T) {
	for name, server := range servers(t) {
		for seed := range map[bool]uint64{true: 60, false: 6}[ring.All()] {
			s := newShop(seed, name == "postgres")
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				f := open(t, server, "", slices.Concat(s.tables, s.insert))
				p := f.Propose(Answers{})
				asked := fmt.Sprint(p.Questions)
				if len(p.Questions) > 0 {
					zone := map[bool]string{true: zoneName(s.zone)}[strings.Contains(asked, "{zone ")]
					p = f.Propose(Answers{Table: s.table, Unpaid: s.unpaid, Closed: s.closed, Zone: zone, Stock: "placed", Due: cmp.Or(s.due, "none"), Delay: s.delay})
				}
				if p.YAML == "" {
					t.Fatalf("no proposal after %v: %s %v\n%v", asked, p.Refused, p.Questions, s.tables)
				}
				s.judge(t, p, asked)
				preview := must.Get(f.Preview(t.Context(), p))(t)
				expect.That(t, preview[0].Orders == 0 && preview[1].Orders == 120, "the first sweep would close %v:\n%s", preview, p.YAML)
			})
		}
	}
}

func (s *shop) judge(t *testing.T, p *Proposal, asked string) {
	cfg := must.Get(config.Parse("topics.yaml", []byte(p.YAML), config.WithoutKafka))(t)
	m := cfg.Orders
	expect.Equal(t, m.Orders, s.table, "the table of orders")
	expect.Equal(t, strings.Trim(fmt.Sprint(m.Status.From), `"`), s.unpaid, "the status of unpaid orders")
	expect.Equal(t, strings.Trim(fmt.Sprint(m.Status.To), `"`), s.closed, "the status of closed orders")
	expect.That(t, s.due != "" || cfg.Delays.Default == s.delay, "the delay %v", cfg.Delays.Default)
	expect.Equal(t, m.Due.Column, cmp.Or(s.due, s.created), "the due column")
	expect.Equal(t, m.Due.Type, s.kind, "its type")
	expect.That(t, s.kind != mapping.DateTime || m.Due.Zone == zoneName(s.zone), "the zone %s", m.Due.Zone)
	expect.That(t, m.Items != nil && m.Items.Table == s.lines && len(m.Stock) == 1 && m.Stock[0].Reserved != "", "lines and stock: %s", p.YAML)
	for _, known := range []string{"table", "unpaid", "closed", "delay"} {
		if s.labelled && !s.postgres || s.worded {
			expect.That(t, !strings.Contains(asked, "{"+known+" "), "--%s is asked, and the database tells it", known)
		}
	}
}

// group are n orders with a status whose ages are spread between two numbers of minutes. after: how many minutes later the third time of the table is.
type group struct {
	status      string
	n, from, to int
	after       int
}

const never = -1 // there is no third time

const columns = " (id BIGINT PRIMARY KEY, status VARCHAR(20) NOT NULL, created_at BIGINT NOT NULL, "

// TestPropose_HostileSchemasAreAskedOrRefused: what looks like a shop of another kind is not guessed.
func TestPropose_HostileSchemasAreAskedOrRefused(t *testing.T) {
	carts := []group{{"cart", 200, 0, 9000, never}, {"payment", 40, 0, 30, never}, {"complete", 200, 0, 9000, 0}, {"canceled", 50, 0, 9000, never}}
	nothing := []group{{"pending", 300, 0, 90_000, 0}, {"completed", 100, 3000, 90_000, 0}, {"canceled", 50, 3000, 90_000, 0}}
	waiting, before := group{"unpaid", 40, 0, 30, never}, []group{{"paid", 100, 3000, 90_000, 0}, {"closed", 100, 3000, 90_000, never}}
	usual := append([]group{waiting, {"paid", 60, 0, 60, 0}}, before...)
	orders, item := "orders"+columns+"pay_time BIGINT NULL)", "order_item (id BIGINT PRIMARY KEY, order_id BIGINT, sku_id BIGINT, quantity INT)"
	stocks := []string{orders, item, "sku (id INT PRIMARY KEY, stock INT, lock_stock INT)", "sku_stock (sku_id INT PRIMARY KEY, available INT, reserved INT)"}
	noMark := []string{"orders" + columns + "note BIGINT NULL)"}
	ended := []string{"orders" + columns + "closed_at BIGINT NULL)"}
	byTime := []group{waiting, {"paid", 60, 0, 60, never}, {"closed", 80, 3000, 90_000, 45}, {"canceled", 25, 3000, 90_000, 3},
		{"canceled", 25, 3000, 90_000, 17}}
	fresh := append([]group{{"new", 40, 0, 30, never}, {"done", 60, 0, 60, never}}, before...)
	payments := append(noMark, "payments (id INT PRIMARY KEY, order_id BIGINT, paid_at BIGINT)",
		"INSERT INTO payments SELECT id, id, created_at FROM orders WHERE status IN ('done', 'paid')")
	one := []string{orders, item, "sku (id INT PRIMARY KEY, stock INT)"}
	log := append(one, "stock_log (id INT PRIMARY KEY, order_id BIGINT)", "INSERT INTO stock_log SELECT id, id FROM orders WHERE status = 'paid'")
	trigger := append(slices.Clone(one), "CREATE TRIGGER takes AFTER INSERT ON order_item FOR EACH ROW"+
		" UPDATE sku SET stock = stock - NEW.quantity WHERE id = NEW.sku_id")
	placed, shards := []string{"orders" + columns + "completed_at BIGINT NULL)"}, []string{orders, "orders_0 (LIKE)", "orders_1 (LIKE)"}
	for _, c := range []struct {
		name, only string // only: the server
		tables     []string
		groups     []group
		answers    Answers
		want       string // part of the file, of the first doubt, of the questions or of the refusal
	}{
		{"orders that were closed by time", "", ended, byTime, Answers{}, "default: 45m"},
		{"payments in another table", "", payments, fresh, Answers{}, `from: "new"`},
		{"no payments", "", noMark, fresh, Answers{}, "Flag:unpaid"},
		{"stock that falls with the payment", "", log, usual, Answers{}, "stock: none"},
		{"stock that nothing tells of", "", one, usual, Answers{}, "Flag:stock"},
		{"stock that a trigger takes", "mariadb", trigger, usual, Answers{}, "available: stock"},
		{"a shop", "", []string{orders}, usual, Answers{}, "default: 30m"},
		{"a rush with few payments", "", []string{orders}, append([]group{waiting, {"paid", 6, 0, 30, 0}}, before...), Answers{}, "Flag:delay"},
		{"two tables with reserved pieces", "", stocks, usual, Answers{}, "Flag:stock"},
		{"both of them", "", stocks, usual, Answers{Stock: "sku_stock"}, "available: available, reserved: reserved"},
		{"shards beside an old table", "", shards, usual, Answers{}, "orders: tables with its name and a number"},
		{"the old table by name", "", shards, usual, Answers{Table: "orders"}, `doubts: ["table orders: tables with its name`},
		{"a table with heirs", "postgres", []string{orders, "orders_old () INHERITS (orders)"}, usual, Answers{}, "orders: other tables inherit it"},
		{"a key that is padded", "postgres", []string{strings.Replace(orders, "BIGINT", "CHAR(36)", 1)}, usual, Answers{}, "refused: orders.id is char"},
		{"carts in the table of orders", "", placed, carts, Answers{}, "payment: carts"},
		{"a cart by name", "", placed, carts, Answers{Unpaid: "payment"}, "those rows are carts"},
		{"a time of delivery", "", placed, append([]group{{"pending", 40, 0, 9000, never}}, carts...), Answers{Unpaid: "pending"}, "Flag:delay"},
		{"nothing waits", "", noMark, nothing, Answers{}, "no order of orders seems to wait"},
		{"nothing waits, and it is answered", "", noMark, nothing, Answers{Unpaid: "pending"}, `doubts: ["no order of orders seems to wait`},
	} {
		for name, server := range servers(t) {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				if c.only != "" && c.only != name {
					t.Skip("for another server")
				}
				var rows, all, then []string
				for _, table := range c.tables {
					if strings.HasPrefix(table, "INSERT") {
						then = append(then, table)
					} else {
						table = strings.Replace(table, "(LIKE)", strings.TrimPrefix(orders, "orders"), 1)
						all = append(all, strings.Replace("CREATE TABLE "+table, "CREATE TABLE CREATE", "CREATE", 1))
					}
				}
				for _, g := range c.groups {
					for i := range g.n {
						at := time.Now().Unix() - int64(60*g.from+60*(g.to-g.from)*i/g.n)
						third := map[bool]string{true: "NULL", false: fmt.Sprint(at + int64(60*g.after))}[g.after == never]
						rows = append(rows, fmt.Sprintf("(%d, '%s', %d, %s)", len(rows)+1, g.status, at, third))
					}
				}
				all = append(all, "INSERT INTO orders VALUES "+strings.Join(rows, ", "))
				p := open(t, server, c.answers.Table, append(all, then...)).Propose(c.answers)
				got := fmt.Sprintf("refused: %s\n%s%+v\ndoubts: %q", p.Refused, p.YAML, p.Questions, p.Doubts)
				expect.That(t, strings.Contains(got, c.want), "%q is not in:\n%s", c.want, got)
			})
		}
	}
}
