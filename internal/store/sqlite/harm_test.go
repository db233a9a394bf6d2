package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// drawn returns how many mappings TestMappings_AnAcceptedOneDoesNoHarm draws. Two thousand take five seconds.
func drawn() int {
	if testing.Short() {
		return 250
	}
	return 2000
}

// harmAt is the time of the closes.
var harmAt = time.Unix(1_800_000_000, 0)

// harmDDL creates a small shop. Ids, users, lines and SKUs have the same numbers, so that a close by the wrong column hits rows of others. Orders 1 and
// 2 may be closed; 6 too, unless the mapping excludes it. The order 3 is not due, 4 is paid, and 5 was closed before.
var harmDDL = []string{
	"CREATE TABLE o (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, state INTEGER NOT NULL, made_at INTEGER, due_at INTEGER GENERATED ALWAYS AS " +
		"(made_at + 1800) VIRTUAL," +
		" ended_at INTEGER, revision INTEGER NOT NULL DEFAULT 1, reason INTEGER NOT NULL DEFAULT 0, deleted INTEGER NOT NULL DEFAULT 0)",
	"INSERT INTO o (id, user_id, state, made_at, deleted) VALUES (1, 2, 0, 1799990000, 0), (2, 1, 0, 1799990001, 0), (3, 2, 0, 1799999000, 0)," +
		" (4, 1, 1, 1799990002, 0), (5, 2, 2, 1799990003, 0), (6, 1, 0, 1799990004, 1)",
	"CREATE TABLE l (id INTEGER PRIMARY KEY, o_id INTEGER NOT NULL, sku TEXT NOT NULL, num INTEGER NOT NULL, price NUMERIC NOT NULL)",
	"INSERT INTO l VALUES (1, 4, 'ink', 1, 9.5), (2, 3, 'nib', 2, 9.5), (3, 1, 'ink', 3, 9.5), (4, 2, 'ink', 1, 9.5), (5, 2, 'nib', 2, 9.5), (6, 6, 'nib', 1, 1)",
	"CREATE TABLE s (sku TEXT PRIMARY KEY, goods INTEGER NOT NULL, free INTEGER NOT NULL, held INTEGER NOT NULL)",
	"INSERT INTO s VALUES ('ink', 1, 10, 20), ('nib', 2, 10, 20)",
	"CREATE TABLE coupons (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, used INTEGER NOT NULL)",
	"INSERT INTO coupons VALUES (1, 3, 1), (2, 4, 1), (3, 1, 1), (4, 2, 1)",
}

// harmSchema is what MySQL says of such tables.
var harmSchema = mapping.Schema{
	"o": {Name: "o", Engine: "InnoDB", Columns: map[string]mapping.Column{
		"id": {Type: "bigint", Definition: "bigint", Numbered: true}, "user_id": {Type: "bigint", Definition: "bigint"},
		"state": {Type: "int", Definition: "int"}, "made_at": {Type: "int", Definition: "int", Nullable: true, Default: true},
		"due_at":   {Type: "int", Definition: "int", Nullable: true, Default: true, Generated: true, Expression: "(`made_at` + 1800)"},
		"ended_at": {Type: "int", Definition: "int", Nullable: true, Default: true}, "revision": {Type: "int", Definition: "int", Default: true},
		"reason": {Type: "int", Definition: "int", Default: true}, "deleted": {Type: "tinyint", Definition: "tinyint", Default: true},
	}, Indexes: []mapping.Index{{Name: "PRIMARY", Unique: true, Columns: []string{"id"}}, {Name: "due", Columns: []string{"state", "due_at", "id"}},
		{Name: "by_user", Columns: []string{"user_id"}}}},
	"l": {Name: "l", Engine: "InnoDB", Columns: map[string]mapping.Column{
		"id": {Type: "bigint", Definition: "bigint", Numbered: true}, "o_id": {Type: "bigint", Definition: "bigint"},
		"sku": {Type: "varchar", Definition: "varchar(9)", Length: 9},
		"num": {Type: "int", Definition: "int"}, "price": {Type: "decimal", Definition: "decimal(9,2)"},
	}, Indexes: []mapping.Index{{Name: "PRIMARY", Unique: true, Columns: []string{"id"}}, {Name: "by_order", Columns: []string{"o_id"}}}},
	"s": {Name: "s", Engine: "InnoDB", Columns: map[string]mapping.Column{
		"sku": {Type: "varchar", Definition: "varchar(9)", Length: 9}, "goods": {Type: "bigint", Definition: "bigint"},
		"free": {Type: "int", Definition: "int"}, "held": {Type: "int", Definition: "int"},
	}, Indexes: []mapping.Index{{Name: "PRIMARY", Unique: true, Columns: []string{"sku"}}, {Name: "by_goods", Columns: []string{"goods"}}}},
}

// rightMapping returns the mapping of the small shop without a mistake.
func rightMapping() *mapping.Mapping {
	return &mapping.Mapping{
		Orders: "o", ID: mapping.Key{Column: "id", Type: mapping.Integer},
		Status:   mapping.Status{Column: "state", From: mapping.OneOf{mapping.IntValue(0)}, To: mapping.IntValue(2), Paid: []mapping.Value{mapping.IntValue(1)}},
		Due:      mapping.TimeColumn{Column: "due_at", Type: mapping.UnixSeconds},
		ClosedAt: []*mapping.TimeColumn{{Column: "ended_at", Type: mapping.UnixSeconds}}, Version: "revision",
		Where:   []mapping.Condition{mapping.Is("deleted", mapping.IntValue(0))},
		OnClose: []string{"UPDATE coupons SET used = 0 WHERE order_id IN ({ids})"},
		Items:   &mapping.Items{Table: "l", Order: "o_id", SKU: "sku", Quantity: "num"},
		Stock:   []*mapping.Stock{{Table: "s", SKU: mapping.Key{Column: "sku"}, Available: "free", Reserved: "held"}},
	}
}

// A mapping with up to four random mistakes is refused, or its closes change nothing but what a right close may change. Two kinds of mistakes are not
// drawn, because no schema tells them: what the values of a status mean, and which of two plain quantities is reserved.
func TestMappings_AnAcceptedOneDoesNoHarm(t *testing.T) {
	accepted, closed := 0, 0
	drawn := drawn()
	for seed := range uint64(drawn) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := rightMapping()
		for range r.IntN(5) {
			mistake(r, m)
		}
		if len(m.Check()) > 0 || len(m.WithDefaults().CheckDatabase(harmSchema, []string{"o"}, []string{"l"})) > 0 {
			continue
		}
		accepted++
		before, after := closeAll(t, m)
		n, err := judgeHarm(m, before, after)
		if closed += n; err != nil {
			t.Errorf("seed %d: the checks accept %+v (items %+v, stock %+v): %v", seed, m, m.Items, m.Stock[0], err)
		}
	}
	expect.That(t, accepted >= drawn/50 && accepted <= drawn/2 && closed >= accepted,
		"of %d mappings %d were accepted and closed %d orders: the draw says little", drawn, accepted, closed)
}

// mistake changes one thing of a mapping at random.
func mistake(r *rand.Rand, m *mapping.Mapping) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	order := pick("id", "user_id", "state", "made_at", "due_at", "ended_at", "revision", "reason", "deleted")
	line := pick("id", "o_id", "sku", "num", "price")
	value := []mapping.Value{mapping.IntValue(0), mapping.IntValue(1), mapping.TextValue("now()"), {}}[r.IntN(4)]
	switch r.IntN(17) {
	case 0:
		m.ID.Column = order
	case 1:
		m.Status.Column = order
	case 2:
		m.Due.Column = order
	case 3:
		m.Due.Type = mapping.UnixMillis
	case 4:
		m.Created = &mapping.TimeColumn{Column: order, Type: mapping.UnixSeconds}
	case 5:
		m.ClosedAt = nil
	case 6, 7:
		m.ClosedAt = []*mapping.TimeColumn{{Column: order, Type: mapping.UnixSeconds}}
	case 8:
		m.Version = pick("", order)
	case 9:
		m.Set = []mapping.ColumnValue{{Column: order, Value: value}}
	case 10:
		m.Where = []mapping.Condition{mapping.Is(order, value)}
	case 11:
		m.Items.Order = line
	case 12:
		m.Items.SKU = line
	case 13:
		m.Items.Quantity = line
	case 14:
		m.Stock[0].Available = pick("free", "goods", "sku", "")
	case 15:
		m.Stock[0].Reserved = pick("held", "goods", "sku", "")
	case 16:
		m.OnClose = []string{pick(
			"UPDATE coupons SET used = 0 WHERE order_id NOT IN ({ids})", "UPDATE coupons SET used = 0 WHERE NOT (order_id IN ({ids}))",
			"UPDATE coupons SET used = 0 WHERE order_id IN ('{ids}')", "UPDATE coupons SET used = 0 WHERE used = 1 AND NOT used = 0 AND order_id IN ({ids})",
			"DELETE FROM RECEIPTS WHERE order_id IN ({ids})", "UPDATE o SET user_id = 9 WHERE id IN ({ids})", "UPDATE S SET free = 0 WHERE goods IN ({ids})")}
	}
}

// closeAll closes all orders as records and as sweeps do, and returns the tables before and after it. Closes may fail.
func closeAll(t *testing.T, m *mapping.Mapping) (before, after map[string]map[string]string) {
	t.Helper()
	s := must.Get(sqlite.OpenWith(sqlite.Memory, sqlite.Options{Orders: m, Now: func() time.Time { return harmAt }}))(t)
	defer func() { _ = s.Close() }()
	must.Do(t, s.Migrate(t.Context()))
	for _, ddl := range harmDDL {
		must.Get(s.DB().ExecContext(t.Context(), ddl))(t)
	}
	before = rowsOf(t, s.DB())
	for id := range 8 {
		_, _ = s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: fmt.Sprint(id)}})
	}
	sweep(t.Context(), s)
	return before, rowsOf(t, s.DB())
}

func sweep(ctx context.Context, s *store.Store) {
	overdue, _ := s.Overdue(ctx, harmAt, orderclose.Order{}, 20)
	for _, o := range overdue {
		_, _ = s.CloseOrders(ctx, orderclose.PathSweep, []orderclose.CloseRequest{{OrderID: o.ID}})
	}
}

// rowsOf returns the values of the shop's tables, by table and key, and then by column.
func rowsOf(t *testing.T, db *sql.DB) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, table := range []string{"o", "l", "s", "coupons"} {
		rows := must.Get(db.QueryContext(t.Context(), "SELECT * FROM "+table))(t)
		columns, _ := rows.Columns()
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			must.Do(t, rows.Scan(into...))
			row := map[string]string{}
			for i, c := range columns {
				row[c] = fmt.Sprint(values[i])
			}
			all[table+" "+row[columns[0]]] = row
		}
		_ = rows.Close()
	}
	return all
}

// judgeHarm compares the tables with what a right close may change. It returns how many orders were closed.
func judgeHarm(m *mapping.Mapping, before, after map[string]map[string]string) (closed int, err error) {
	if len(before) != len(after) {
		return 0, fmt.Errorf("there were %d rows, and now %d", len(before), len(after))
	}
	may := []string{"state", "ended_at", "revision", "reason"} // nothing in the schema tells a revision from another number
	for _, a := range m.Set {
		may = append(may, a.Column) // the file names column and value
	}
	back := map[string]int{} // by SKU
	for key, was := range before {
		is := after[key]
		if !strings.HasPrefix(key, "o ") || maps.Equal(was, is) {
			continue
		}
		if was["state"] != "0" || is["state"] != "2" || was["due_at"] > fmt.Sprint(harmAt.Unix()) {
			return closed, fmt.Errorf("%s was %v, and is %v", key, was, is)
		}
		if wrong := differ(was, is, may...); wrong != "" {
			return closed, fmt.Errorf("%s of %s was %s, and is %s", wrong, key, was[wrong], is[wrong])
		}
		closed++
		for _, line := range before {
			if line["o_id"] == was["id"] {
				back[line["sku"]] += number(line["num"])
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		was, is := before[key], after[key]
		switch table, _, _ := strings.Cut(key, " "); table {
		case "l":
			if wrong := differ(was, is); wrong != "" {
				return closed, fmt.Errorf("%s of %s has changed", wrong, key)
			}
		case "s":
			if err := judgeStock(m.Stock[0], back[was["sku"]], was, is); err != nil {
				return closed, fmt.Errorf("%s: %w", key, err)
			}
		case "coupons":
			of := "o " + was["order_id"]
			if !maps.Equal(was, is) && before[of]["state"] == after[of]["state"] {
				return closed, fmt.Errorf("%s is of an order that was not closed, and has changed", key)
			}
		}
	}
	return closed, nil
}

func judgeStock(s *mapping.Stock, back int, was, is map[string]string) error {
	want := maps.Clone(was)
	if s.Available == "free" {
		want["free"] = fmt.Sprint(number(was["free"]) + back)
	}
	if s.Reserved == "held" {
		want["held"] = fmt.Sprint(number(was["held"]) - back)
	}
	if !maps.Equal(want, is) {
		return fmt.Errorf("%d came back; want %v, got %v", back, want, is)
	}
	return nil
}

// differ returns a column that differs and is none of may; empty: there is none.
func differ(was, is map[string]string, may ...string) string {
	for column := range was {
		if was[column] != is[column] && !slices.Contains(may, column) {
			return column
		}
	}
	return ""
}

func number(text string) (n int) {
	_, _ = fmt.Sscan(text, &n)
	return n
}
