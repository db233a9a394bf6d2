package propose

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// generated is a shop in memory, with its rows as a driver returns them: a job that closes unpaid orders, or none, one kind of order that has to stay open,
// and deleted orders.
type generated struct {
	*rand.Rand
	f                         *Facts
	table                     *Table
	statuses                  [4]string // before the payment, unpaid, paid, closed
	asNumbers, job            bool
	special                   *column // by which the orders are told that stay open; nil: another table tells
	answer                    string  // of its owner
	stays                     []bool  // by row
	paidApart                 bool    // payments are in a table of their own
	deleted                   *column
	mark                      *column  // whether an order is paid, beside its status
	seen                      []string // the questions
	now                       time.Time
	state, paidAt, made, shut *column
}

const generatedRows, generatedDelay = 900, 30 * time.Minute

func generate(seed uint64, now time.Time) *generated {
	r := rand.New(rand.NewPCG(seed, 80))
	g := &generated{Rand: r, now: now, job: r.IntN(3) > 0, asNumbers: r.IntN(2) == 0, paidApart: r.IntN(3) == 0}
	postgres := r.IntN(3) == 0
	g.table = &Table{Table: mapping.Table{Name: "orders", Postgres: postgres, Columns: map[string]mapping.Column{},
		Indexes: []mapping.Index{{Name: map[bool]string{true: "orders_pkey", false: "PRIMARY"}[postgres], Unique: true, Columns: []string{"id"}}}},
		read: true, all: true,
		rows: generatedRows}
	g.f = &Facts{Now: g.now, All: 1, Tables: []*Table{g.table}, links: map[[2]*column]link{}, parts: map[string]int{}, inserts: map[string]string{}}
	add := func(name, kind, definition string, nullable bool) *column {
		c := &column{Column: mapping.Column{Name: name, Type: kind, Definition: definition, Nullable: nullable, Length: 20}, table: g.table, key: name,
			labels: map[string]string{}}
		g.table.columns, g.table.Columns[name] = append(g.table.columns, c), c.Column
		return c
	}
	id := add("id", "bigint", "bigint", false)
	g.statuses = [4]string{"draft", pick(r, "unpaid", "pending_payment", "pending"), "paid", pick(r, "closed", "cancelled")}
	kind := "varchar"
	if g.asNumbers {
		g.statuses, kind = [4]string{"5", "0", "1", "9"}, "int"
	}
	g.state = add("status", kind, kind, false)
	if g.asNumbers && r.IntN(2) == 0 {
		g.state.labels = map[string]string{"0": "unpaid", "1": "paid", "9": "closed"}
	}
	zoned := map[bool]string{true: "timestamptz", false: "timestamp"}[postgres]
	g.made, g.shut = add("created_at", zoned, zoned, false), add("closed_at", zoned, zoned, true)
	if !g.paidApart {
		g.paidAt = add("paid_at", zoned, zoned, true)
	}
	noise := add("channel_no", "int", "int", false)
	marks, number := rand.New(rand.NewPCG(seed, 81)), (*column)(nil)
	said := [4]any{nil, "AWAITING_PAYMENT", "PAYMENT_RECEIVED", "PAYMENT_FAILED"}
	if kind := marks.IntN(6); kind == 0 {
		g.mark = add("payment_status", "varchar", "varchar", true)
	} else if kind == 1 {
		g.mark, said = add("is_paid", "tinyint", "tinyint(1)", true), [4]any{nil, int64(0), int64(1), int64(0)}
	}
	if marks.IntN(3) == 0 {
		number = add("trade_no", "varchar", "varchar", false)
	}
	if r.IntN(2) == 0 {
		g.deleted = add(pick(r, "deleted", "del", "is_delete"), "tinyint", "tinyint(1)", false)
	}
	flag := func(yes bool) any { return map[bool]int64{true: 1}[yes] }
	value := flag
	switch r.IntN(9) {
	case 0:
		g.special, g.answer = add("is_preorder", "tinyint", "tinyint(1)", false), "1"
	case 1:
		g.special, g.answer = add("held_back", "bit", "bit(1)", false), "1"
		value = func(yes bool) any { return map[bool]string{true: "\x01", false: "\x00"}[yes] }
		if postgres {
			g.special.Type, g.special.Definition, g.answer = "boolean", "boolean", "true"
			value = func(yes bool) any { return yes }
		}
	case 2:
		g.special, g.answer = add("payment_method", pick(r, "varchar", "enum"), "enum('card','cod')", false), "cod"
		value = func(yes bool) any { return map[bool]string{true: "cod", false: "card"}[yes] }
	case 3:
		g.special, g.answer = add("kind_no", "smallint", "smallint", false), "7"
		value = func(yes bool) any { return map[bool]int64{true: 7, false: 1}[yes] }
	case 4:
		g.special, g.answer = add("deposit_paid", "decimal", "decimal(10,2)", false), "set"
		value = func(yes bool) any {
			return map[bool]string{true: fmt.Sprintf("%d.50", 1+r.IntN(90)), false: "0.00"}[yes]
		}
	case 5:
		g.special, g.answer = add("release_date", "date", "date", true), "set"
		value = func(yes bool) any {
			if yes {
				return g.now.AddDate(0, 0, 1+r.IntN(60))
			}
			return nil
		}
	case 6:
		g.special, g.answer = add("contract_id", "uuid", "uuid", true), "set"
		value = func(yes bool) any {
			if yes {
				return fmt.Sprintf("%08x-0000-4000-8000-000000000000", r.Uint32())
			}
			return nil
		}
	case 7:
		g.special = nil // a row of another table tells
	case 8:
		g.special, g.answer = add("is_gift", "tinyint", "tinyint(1)", false), "none" // no order stays open
	}
	share := pick(r, 0.01, 0.05, 0.2, 0.5, 0.9, 0.99)
	for i := range generatedRows {
		age := time.Duration(generatedRows-i) * 3 * time.Minute
		created, never := g.now.Add(-age), any(nil)
		special := r.Float64() < share
		stays := special && g.answer != "none"
		status, paid, ended := 1, never, never
		switch after := time.Duration(1+r.IntN(20)) * time.Minute; {
		case stays && age > 30*time.Hour:
			status, paid = 2, created.Add(29*time.Hour)
		case stays:
		case r.IntN(4) > 0 && age > after:
			status, paid = 2, created.Add(after)
		case age > generatedDelay && (g.job || r.IntN(3) == 0):
			status, ended = 3, created.Add(generatedDelay+time.Duration(r.IntN(60))*time.Second)
		}
		removed := g.deleted != nil && status == 1 && age > generatedDelay && !g.job && r.IntN(3) == 0
		put := func(c *column, v any) {
			if c != nil {
				c.rows = append(c.rows, v)
			}
		}
		state := any(g.statuses[status])
		if g.asNumbers {
			state = map[int]int64{1: 0, 2: 1, 3: 9}[status]
		}
		put(id, int64(i+1))
		put(g.state, state)
		put(g.made, created)
		put(g.shut, ended)
		put(g.paidAt, paid)
		put(noise, int64(r.IntN(3)))
		put(number, fmt.Sprint("T", i))
		marked := marks.IntN(2)
		switch {
		case status == 2, status == 1 && g.answer != "none" && marks.IntN(20) == 0: // the second kind is paid, and its status late
			marked = 2
		case marks.IntN(20) == 0 && g.answer != "none":
			marked = 3
		}
		put(g.mark, said[marked])
		put(g.deleted, flag(removed))
		put(g.special, value(special))
		lost := g.paidApart && status == 1 && r.IntN(40) == 0 // a payment whose callback was lost
		mark := any(nil)
		if g.paidApart && (paid != nil || lost) {
			mark = true
		}
		g.table.paid.rows, g.table.logged.rows = append(g.table.paid.rows, mark), append(g.table.logged.rows, nil)
		g.stays = append(g.stays, stays || removed || lost || g.mark != nil && marked == 2)
	}
	if g.paidApart {
		g.table.paidIn = []string{"payments"}
	}
	return g
}

// owner answers one question as the owner of the shop would.
func (g *generated) owner(q Question, a *Answers) {
	g.seen = append(g.seen, strings.TrimSpace(q.Flag+" "+q.Key))
	special := ""
	if g.special != nil && g.answer != "none" {
		special = g.special.Name + "=" + g.answer
	}
	switch {
	case q.Flag == "unpaid":
		a.Unpaid = g.statuses[1]
	case q.Flag == "closed":
		a.Closed = g.statuses[3]
	case q.Flag == "delay":
		a.Delay = generatedDelay
	case q.Flag == "due":
		a.Due = "none"
	case q.Flag == "table":
		a.Table = "orders"
	case q.Key == "payments=":
		a.Keep = append(a.Keep, "payments=ids")
	case q.Key != "" && special != "" && strings.HasPrefix(special, q.Key):
		a.Keep = append(a.Keep, special)
	case q.Key != "":
		a.Keep = append(a.Keep, q.Key+"none")
	case special != "" && !slices.Contains(a.Keep, special):
		a.Keep = append(a.Keep, special)
	case g.special == nil:
		a.Keep = append(a.Keep, "unknown")
	default:
		a.Keep = append(a.Keep, "none")
	}
}

// TestPropose_GeneratedShopsAreClosedRight: with the answers of an honest owner no proposal closes an order that has to stay open, and none leaves another
// one open without a question.
func TestPropose_GeneratedShopsAreClosedRight(t *testing.T) {
	for seed := range map[bool]uint64{true: 1500, false: 150}[ring.All()] {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			generate(seed, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)).isRight(t)
		})
	}
}

// TestPropose_GeneratedShopsOnAServerAreClosedRight is the same with the tables of each shop on a real server.
func TestPropose_GeneratedShopsOnAServerAreClosedRight(t *testing.T) {
	for name, server := range servers(t) {
		for seed := range map[bool]uint64{true: 60, false: 6}[ring.All()] {
			g := generate(seed, time.Now().UTC().Truncate(time.Second))
			if g.table.Postgres != (name == "postgres") {
				continue
			}
			t.Run(fmt.Sprint(name, "/", seed), func(t *testing.T) {
				g.f = open(t, server, "orders", g.statements())
				g.state = g.f.candidates("orders")[0].named("status")
				slices.Reverse(g.stays) // the newest rows are read first
				g.isRight(t)
			})
		}
	}
}

// statements create the tables of the shop with their rows.
func (g *generated) statements() []string {
	types := map[string]string{"varchar": "VARCHAR(40)", "enum": "ENUM('card','cod')", "decimal": "DECIMAL(10,2)", "bit": "BIT(1)", "tinyint": "TINYINT(1)",
		"uuid": "VARCHAR(36)"}
	if g.table.Postgres {
		types = map[string]string{"varchar": "VARCHAR(40)", "enum": "VARCHAR(40)", "decimal": "DECIMAL(10,2)", "tinyint": "SMALLINT", "timestamptz": "TIMESTAMPTZ(0)"}
	}
	literal := func(v any) string {
		switch v := v.(type) {
		case nil:
			return "NULL"
		case time.Time:
			return v.Format("'2006-01-02 15:04:05'")
		case string:
			if v == "\x00" || v == "\x01" {
				return fmt.Sprintf("b'%d'", v[0])
			}
			return "'" + v + "'"
		}
		return fmt.Sprint(v)
	}
	var columns, rows, payments []string
	for _, c := range g.table.columns {
		columns = append(columns, c.Name+" "+cmp.Or(types[c.Type], c.Type)+map[bool]string{true: " NULL", false: " NOT NULL"}[c.Nullable])
	}
	for row := range generatedRows {
		var values []string
		for _, c := range g.table.columns {
			values = append(values, literal(c.rows[row]))
		}
		rows = append(rows, "("+strings.Join(values, ", ")+")")
		if g.table.paid.rows[row] != nil {
			payments = append(payments, fmt.Sprintf("(%d, '%d', 'SUCCESS')", row+1, row+1))
		}
	}
	all := []string{"CREATE TABLE orders (" + strings.Join(columns, ", ") + ", PRIMARY KEY (id))", "INSERT INTO orders VALUES " + strings.Join(rows, ", ")}
	if comment := "'0:unpaid,1:paid,9:closed'"; len(g.state.labels) > 0 && g.table.Postgres {
		all = append(all, "COMMENT ON COLUMN orders.status IS "+comment)
	} else if len(g.state.labels) > 0 {
		all = append(all, "ALTER TABLE orders MODIFY status INT NOT NULL COMMENT "+comment)
	}
	if len(payments) > 0 {
		all = append(all, "CREATE TABLE payments (id INT PRIMARY KEY, order_id "+pick(g.Rand, "BIGINT", "VARCHAR(40)")+", status VARCHAR(20))",
			"INSERT INTO payments VALUES "+strings.Join(payments, ", "))
	}
	return all
}

// isRight proposes with the answers of an honest owner, and checks which orders would close.
func (g *generated) isRight(t *testing.T) {
	a := Answers{}
	p := g.f.Propose(a)
	for len(p.Questions) > 0 && len(g.seen) < 12 {
		g.owner(p.Questions[0], &a)
		p = g.f.Propose(a)
	}
	what := fmt.Sprintf("job %v, %v of %v tells: questions %q, refused %q, answers %+v\n%s", g.job, g.answer, g.special != nil, g.seen, p.Refused, a, p.YAML)
	if p.YAML == "" {
		t.Fatalf("no proposal: %s", what)
	}
	unknown := slices.Contains(a.Keep, "unknown")
	var wrong, left []int
	for row, stays := range g.stays {
		if text(g.state.rows[row]) != g.statuses[1] {
			continue
		}
		closes := p.unpaid(row) && !p.created.at[row].Add(p.delay).Before(p.notBefore)
		switch {
		case stays && closes && (!unknown || p.created.at[row].Add(p.delay).Before(g.now)):
			wrong = append(wrong, row+1)
		case !stays && !closes && !unknown:
			left = append(left, row+1)
		}
	}
	expect.That(t, len(wrong) == 0, "orders %v would close, and have to stay open: %s", wrong, what)
	expect.That(t, len(left) == 0, "orders %v stay open without a question: %s", left, what)
	expect.That(t, g.answer != "none" || len(g.seen) <= 5, "too many questions: %s", what)
	cfg := must.Get(config.Parse("topics.yaml", []byte(p.YAML), config.WithoutKafka))(t)
	e := g.f.Exceptions(cfg.Orders, p.delay)
	expect.That(t, len(e.Money) == 0 || cfg.Accepts(mapping.PaidOrders), "the file has exceptions that nobody was asked about: %+v: %s", e, what)
	cfg.Orders.Where, cfg.Orders.NotBefore = nil, time.Time{}
	e = g.f.Exceptions(cfg.Orders, p.delay)
	asked := slices.ContainsFunc(g.seen, func(q string) bool { return strings.HasPrefix(q, "keep") })
	expect.That(t, !asked || len(e.Money)+len(e.Old) > 0, "without its conditions the file has no exceptions: %s", what)
}
