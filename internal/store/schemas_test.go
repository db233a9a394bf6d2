package store_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/postgres"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// Tables of shops by seed: charsets, collations, types, names, missing indexes, ids and SKUs that nobody would choose. A sweep closes the
// orders that this test finds due in its own list, and returns their stock, or migrate refuses the tables with a fix that works.
// SEED=17 plays one shop again, and SEEDS=2000 plays as many on each database, from SEED on.
func TestSchemas_AnyShopIsClosedOrRefusedWithAFix(t *testing.T) { eachDatabase(t, anyShop) }

func anyShop(t *testing.T) {
	first, after := ring.Seeds(20)
	for seed := first; seed < after; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := drawShop(rand.New(rand.NewPCG(seed, 49)), kindOf(t))
			defer func() {
				if t.Failed() {
					t.Logf("%s\n%s", strings.Join(d.ddl, ";\n"), d.orders)
				}
			}()
			d.play(t)
		})
	}
}

// drawnShop is a shop as the seed has drawn it.
type drawnShop struct {
	*rand.Rand
	kind   string // of server
	ddl    []string
	orders string // of topics.yaml
	// charset is that of the tables of MySQL and MariaDB.
	charset string
	numbers bool // ids are integers
	status  [3]string
	due     string // type of the column
	stock   map[string][2]int64
	rows    []drawnOrder
}

type drawnOrder struct {
	id    string
	state int // index of drawnShop.status: unpaid, paid, closed
	in    time.Duration
	lines map[string]int64
}

// one draws one of several values.
func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// collations has those of each charset, which may differ between two servers.
var collations = map[string][]string{
	"utf8mb4": {"utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin"}, "utf8mb3": {"utf8mb3_general_ci", "utf8mb3_bin"},
	"gbk": {"gbk_chinese_ci", "gbk_bin"}, "gb18030": {"gb18030_chinese_ci", "gb18030_bin"}, "big5": {"big5_chinese_ci"},
	"latin1": {"latin1_swedish_ci", "latin1_general_cs", "latin1_bin"}, "ascii": {"ascii_general_ci"},
}

// textsOf has texts that a charset has, beside those of ASCII.
var textsOf = map[string][]string{
	"utf8mb4": {"单-1", "é", "🧾", "ı"}, "utf8mb3": {"单-1", "é", "ß"}, "gbk": {"单-1", "红色-L", "縗"}, "gb18030": {"单-1", "é", "🧾"},
	"big5": {"紅色"}, "latin1": {"é", "ß"},
}

func drawShop(r *rand.Rand, kind string) *drawnShop {
	d := &drawnShop{Rand: r, kind: kind, charset: "utf8mb4", stock: map[string][2]int64{}}
	if kind != "postgres" {
		d.charset = one(r, "utf8mb4", "utf8mb4", "utf8mb3", "gbk", "gb18030", "big5", "latin1", "ascii")
		if d.charset == "gb18030" && kind == "mariadb" {
			d.charset = "gbk"
		}
	}
	d.numbers = r.IntN(3) == 0
	d.draw()
	texts := append([]string{"a", "B", "O'1", `x\1`, "%_", "a b", `"q"`, "x", "-1", strings.Repeat("9", 32)}, textsOf[d.charset]...)
	for _, sku := range texts[:3+r.IntN(len(texts)-3)] {
		d.stock[sku] = [2]int64{int64(r.IntN(100)), 1000}
	}
	if !d.numbers {
		texts = append(texts, " lead", "tab\t", "\u0001")
		if d.charset != "ascii" && d.charset != "latin1" {
			texts = append(texts, "wide\u3000")
		}
	}
	skus := slices.Sorted(maps.Keys(d.stock))
	for i := range 12 {
		o := drawnOrder{id: strconv.Itoa(i + 1), state: one(r, 0, 0, 0, 1, 2), in: one(r, -time.Hour, -2*time.Minute, time.Hour), lines: map[string]int64{}}
		if !d.numbers && i < len(texts) {
			o.id = texts[len(texts)-1-i]
		}
		for range r.IntN(3) {
			o.lines[one(r, skus...)] = int64(r.IntN(3))
		}
		d.rows = append(d.rows, o)
	}
	return d
}

// name draws a name and quotes it for the statements of this test.
func (d *drawnShop) name(of ...string) (name, quoted string) {
	if d.charset != "ascii" && d.charset != "latin1" {
		of = append(of, "单_"+of[0])
	}
	name = one(d.Rand, of...)
	if d.kind == "postgres" {
		return name, `"` + name + `"`
	}
	return name, "`" + name + "`"
}

// draw draws the tables and their mapping.
func (d *drawnShop) draw() {
	text, end, lineEnd := "VARCHAR(64)", "", ""
	if d.kind != "postgres" {
		end = " DEFAULT CHARACTER SET " + d.charset + " COLLATE " + one(d.Rand, collations[d.charset]...)
		if lineEnd = end; d.IntN(4) == 0 {
			charset := one(d.Rand, d.charset, "utf8mb4")
			lineEnd = " DEFAULT CHARACTER SET " + charset + " COLLATE " + one(d.Rand, collations[charset]...)
		}
		lineEnd += one(d.Rand, "", "", "", " ENGINE=MyISAM")
		end += one(d.Rand, "", "", "", "", " ENGINE=MyISAM")
	} else {
		text = one(d.Rand, "varchar(64)", "text")
	}
	id, number := text, "BIGINT"
	if d.kind == "postgres" && d.IntN(8) == 0 {
		id = "char(40)"
	}
	if d.numbers {
		id = "BIGINT"
		if d.kind != "postgres" && d.IntN(2) == 0 {
			id, number = "BIGINT UNSIGNED", "BIGINT UNSIGNED"
		}
	}
	d.status = one(d.Rand, [3]string{"0", "1", "4"}, [3]string{"'new'", "'paid'", "'closed'"})
	status := one(d.Rand, "INT", "SMALLINT")
	if d.status[0] != "0" {
		if status = one(d.Rand, "VARCHAR(16)", "CHAR(6)"); d.kind != "postgres" && d.IntN(3) == 0 {
			status = "ENUM('new', 'paid', 'closed')"
		}
	}
	dueIs := ""
	switch d.due = one(d.Rand, "unix_s", "unix_ms", "datetime"); {
	case d.due == "datetime":
		dueIs = "TIMESTAMP(3)"
		if d.kind != "postgres" {
			dueIs = "DATETIME(3)"
		}
	default:
		dueIs = "BIGINT"
	}
	orders, o := d.name("t_order", "order", "Orders")
	key, k := d.name("id", "order_no")
	state, s := d.name("status", "order")
	due, at := d.name("due", "time")
	items, l := d.name("t_line", "order$line")
	sku, sk := d.name("sku", "key")
	stock, st := d.name("t_stock", "stocks")
	free, f := d.name("free", "left")
	held, h := d.name("held", "lock")
	null := one(d.Rand, "", " NOT NULL")
	byOrder := one(d.Rand, "CREATE INDEX by_order ON "+l+" (oid)", "CREATE INDEX by_order ON "+l+" (oid)", "SELECT 1")
	index := "CREATE INDEX by_due ON " + o + " (" + s + ", " + at + ", " + k + ")"
	if d.IntN(4) == 0 {
		index = "SELECT 1"
	}
	d.ddl = []string{
		fmt.Sprintf("CREATE TABLE %s (%s %s NOT NULL PRIMARY KEY, %s %s NOT NULL, %s %s%s)%s", o, k, id, s, status, at, dueIs, null, end),
		index,
		fmt.Sprintf("CREATE TABLE %s (line INT NOT NULL PRIMARY KEY, oid %s NOT NULL, %s %s, num %s)%s", l, id, sk, text,
			one(d.Rand, "INT NOT NULL", "SMALLINT", "BIGINT"), lineEnd),
		byOrder,
		fmt.Sprintf("CREATE TABLE %s (%s %s NOT NULL PRIMARY KEY, %s %s NOT NULL, %s BIGINT NOT NULL)%s", st, sk, text, f, number, h, end),
	}
	kind := map[bool]string{true: "integer", false: "text"}[d.numbers]
	zone := ""
	if d.due == "datetime" {
		zone = `, zone: "+08:00", precision: ms`
	}
	d.orders = fmt.Sprintf(`
  table: %q
  id: {column: %q, type: %s}
  status: {column: %q, from: %s, to: %s, paid: [%s]}
  due: {column: %q, type: %s%s}
  items: {table: %q, order: oid, sku: %q, quantity: num}
  stock: {table: %q, sku: %q, available: %q, reserved: %q}
`, orders, key, kind, state, d.status[0], d.status[2], d.status[1], due, d.due, zone, items, sku, stock, sku, free, held)
}

// at writes a due time as the column has it.
func (d *drawnShop) at(due time.Time) any {
	switch d.due {
	case "unix_s":
		return due.Unix()
	case "unix_ms":
		return due.UnixMilli()
	}
	return due.In(time.FixedZone("", 8*3600)).Format("2006-01-02 15:04:05.000")
}

// sql writes a statement with backquotes as the server takes it.
func (d *drawnShop) sql(query string) string {
	if d.kind == "postgres" {
		return postgres.Translate(query)
	}
	return query
}

func (d *drawnShop) play(t *testing.T) {
	m := ordersOf(t, "buckets: [1m, 5m]", d.orders)
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: m, Pipeline: "order-close"})
	for _, ddl := range d.ddl {
		exec(t, s.DB(), ddl)
	}
	d.migrate(t, s)
	now := must.Get(s.Now(t.Context()))(t)
	d.fill(t, s, m, now)
	c := must.Get(compensator.New(compensator.Options{Store: s, Reader: s, SweepLog: s, Name: "sweep", Alone: true}))(t)
	report := must.Get(c.Sweep(t.Context(), false))(t)
	var closed, refused []string
	var failures []string
	for _, o := range d.rows {
		if o.state != 0 || o.in > 0 {
			continue
		}
		if orderclose.ValidateID(o.id) != nil {
			refused = append(refused, o.id)
			continue
		}
		closed = append(closed, o.id)
		for sku, quantity := range o.lines {
			row := d.stock[sku]
			d.stock[sku] = [2]int64{row[0] + quantity, row[1] - quantity}
		}
	}
	for _, f := range report.Failures {
		failures = append(failures, f.OrderID)
		must.That(t, slices.Contains(refused, f.OrderID), "order %q: %s", f.OrderID, f.Error)
	}
	must.That(t, len(failures) == len(refused) && report.Closed == len(closed), "closed %d, failed %q; want %q and %q", report.Closed, failures, closed, refused)
	d.compare(t, s, m, closed)
}

// migrate follows the fixes of a refusal.
func (d *drawnShop) migrate(t *testing.T, s *store.Store) {
	for range 3 {
		wrong, refused := errors.AsType[*store.MappingError](s.CheckMapping(t.Context()))
		if !refused {
			break
		}
		for _, p := range wrong.Problems {
			must.That(t, strings.HasPrefix(p.Fix, "CREATE ") || strings.HasPrefix(p.Fix, "ALTER "), "%s: %s: no fix that is a statement: %s", p.Path, p.What, p.Fix)
			exec(t, s.DB(), p.Fix)
		}
	}
	must.Do(t, s.CheckMapping(t.Context()))
	must.Do(t, s.Migrate(t.Context()))
}

func (d *drawnShop) fill(t *testing.T, s *store.Store, m *mapping.Mapping, now time.Time) {
	insert := func(table string, columns []string, args ...any) {
		for i, c := range columns {
			columns[i] = mapping.Quote(c)
		}
		exec(t, s.DB(), d.sql("INSERT INTO "+mapping.Quote(table)+" ("+strings.Join(columns, ", ")+") VALUES (?"+strings.Repeat(", ?", len(args)-1)+")"), args...)
	}
	status, line := []mapping.Value{m.Status.From[0], m.Status.Paid[0], m.Status.To}, 0
	for _, o := range d.rows {
		insert(m.Orders, []string{m.ID.Column, m.Status.Column, m.Due.Column}, o.id, status[o.state].Arg(), d.at(now.Add(o.in)))
		for _, sku := range slices.Sorted(maps.Keys(o.lines)) {
			line++
			insert(m.Items.Table, []string{"line", "oid", m.Items.SKU, "num"}, line, o.id, sku, o.lines[sku])
		}
	}
	for sku, row := range d.stock {
		insert(m.Stock[0].Table, []string{m.Stock[0].SKU.Column, m.Stock[0].Available, m.Stock[0].Reserved}, sku, row[0], row[1])
	}
}

// compare reads the tables by statements of its own.
func (d *drawnShop) compare(t *testing.T, s *store.Store, m *mapping.Mapping, closed []string) {
	rows := must.Get(s.DB().QueryContext(t.Context(), d.sql(fmt.Sprintf("SELECT %s, %s FROM %s", mapping.Quote(m.ID.Column), mapping.Quote(m.Status.Column),
		mapping.Quote(m.Orders)))))(t)
	defer func() { must.Do(t, rows.Close()) }()
	for rows.Next() {
		var id, status string
		must.Do(t, rows.Scan(&id, &status))
		i := slices.IndexFunc(d.rows, func(o drawnOrder) bool { return o.id == id })
		must.That(t, i >= 0, "there is an order %q", id)
		want := strings.Trim(d.status[d.rows[i].state], "'")
		if slices.Contains(closed, id) {
			want = strings.Trim(d.status[2], "'")
		}
		must.That(t, strings.TrimRight(status, " ") == want, "order %q has the status %q, want %q", id, status, want)
	}
	stock := m.Stock[0]
	for sku, want := range d.stock {
		var free, held int64
		query := fmt.Sprintf("SELECT %s, %s FROM %s WHERE %s = ?", mapping.Quote(stock.Available), mapping.Quote(stock.Reserved), mapping.Quote(stock.Table),
			mapping.Quote(stock.SKU.Column))
		must.Do(t, s.DB().QueryRowContext(t.Context(), d.sql(query), sku).Scan(&free, &held))
		must.That(t, free == want[0] && held == want[1], "SKU %q: %d available, %d reserved; want %d", sku, free, held, want)
	}
}
