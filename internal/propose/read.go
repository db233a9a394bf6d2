// Package propose reads a shop's database, and proposes the section orders of topics.yaml for it.
//
// Read reads the database once: it only selects, and bounds each statement in time and rows. Facts.Propose is pure. What it cannot know is a
// Question, whose answer is a field of Answers. What names and words suggest is in rules.txt.
package propose

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// How much Read reads.
const (
	maxTables = 120    // tables whose columns are read, those with the most likely names
	maxRows   = 20_000 // the newest rows of a table
	maxLinks  = 60     // values that are looked up in another table
)

// Facts is what a database tells of its tables.
type Facts struct {
	Now    time.Time // the database's clock
	All    int       // tables and views of the database
	Tables []*Table

	store     *store.Store
	links     map[[2]*column]link
	unread    []string          // tables that may have payments, and could not be read
	parts     map[string]int    // how many tables have a name, with up to three digits at its end
	inserts   map[string]string // what triggers do after an INSERT into a table, in lower case
	elsewhere string            // which other schemas have tables; "": none
	created   string            // the column that the user names as the time of creation, in lower case
}

// link says how many values of a column another table has.
type link struct{ found, of int }

func (l link) sure() bool { return l.of > 0 && 10*l.found >= 8*l.of }

// Table is a table with what Read knows of it.
type Table struct {
	mapping.Table
	Pattern string // of the names of Months tables, one for each month; Name is that of the newest
	Months  int

	columns []*column // by their names
	read    bool      // its newest rows were read
	rows    int       // that were read
	all     bool      // it has no others
	parent  bool      // other tables inherit it
	unread  string    // why they could not be read
	paid    column    // whether another table has a payment
	paidIn  []string  // the tables with payments
	logged  column    // whether a log of the stock has the order
}

// Read reads what Propose needs. named is the table that the user names, and created its time of creation; "": none. The error wraps
// orderclose.ErrUnavailable if the database does not answer.
func Read(ctx context.Context, s *store.Store, named, created string) (*Facts, error) {
	if err := s.Ping(ctx); err != nil {
		return nil, err
	}
	f := &Facts{store: s, created: strings.ToLower(created), links: map[[2]*column]link{}, parts: map[string]int{}, inserts: map[string]string{}}
	var err error
	if f.Now, err = s.Now(ctx); err == nil {
		err = f.readTables(ctx, named)
	}
	if err != nil {
		return nil, fmt.Errorf("read the tables: %w", err)
	}
	f.ReadRows(ctx, named)
	return f, nil
}

// ReadRows reads the rows of the table that the user names, or of those that may have the orders, unless they were read.
func (f *Facts) ReadRows(ctx context.Context, named string) {
	for _, c := range f.candidates(named) {
		if !c.read && (c.against == "" || c.byName && named != "") {
			if err := f.readOrders(ctx, c.Table); err != nil {
				c.unread = "its rows cannot be read: " + err.Error()
			}
		}
	}
}

func (f *Facts) catalog() catalog { return catalogs[f.store.Dialect()] }

// query returns the rows of a query, with bytes as text. No setting outlasts it: behind a pooler the session is that of the shop too.
func (f *Facts) query(ctx context.Context, query string, args ...any) (all [][]any, err error) {
	err = f.store.Select(ctx, query, args, func(found *sql.Rows) error {
		columns, err := found.Columns()
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err == nil {
			err = found.Scan(into...)
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = string(b)
			}
		}
		all = append(all, row)
		return err
	})
	return all, err
}

// selecting writes a query for columns of one table.
func selecting(columns ...*column) string {
	var all []string
	for _, c := range columns {
		all = append(all, mapping.Quote(c.Name))
	}
	return "SELECT " + strings.Join(all, ", ") + " FROM " + mapping.Quote(columns[0].table.Name)
}

// catalog has the queries that a kind of database answers about tables.
type catalog struct {
	names    string // of tables, and whether each is a view or one that others inherit
	schemas  string // that also have tables; empty: a connection sees one
	comments string // of the columns of a table
	triggers string // their tables and texts
}

var catalogs = map[store.DialectName]catalog{
	store.MySQL: {
		names:    "SELECT table_name, table_type LIKE '%VIEW%', 0 FROM information_schema.tables WHERE table_schema = DATABASE()",
		comments: "SELECT column_name, column_comment FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?",
		triggers: "SELECT event_object_table, action_statement FROM information_schema.triggers WHERE event_object_schema = DATABASE()" +
			" AND event_manipulation = 'INSERT'",
	},
	store.Postgres: {
		names: "SELECT c.relname, c.relkind IN ('v', 'm')," +
			" c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace" +
			" AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)",
		schemas: "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')" +
			" AND n.oid IS DISTINCT FROM current_schema()::regnamespace AND n.nspname !~ '^pg_|^information_schema$' GROUP BY 1 ORDER BY COUNT(*) DESC LIMIT 5",
		comments: "SELECT a.attname, d.description FROM pg_class c JOIN pg_description d ON d.classoid = 'pg_class'::regclass AND d.objoid = c.oid" +
			" JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND a.attnum > 0" +
			" WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ?",
		triggers: "SELECT c.relname, p.prosrc FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid" +
			" WHERE NOT t.tgisinternal AND t.tgtype & 4 > 0 AND c.relnamespace = current_schema()::regnamespace",
	},
}

func (f *Facts) readTables(ctx context.Context, named string) error {
	found, err := f.query(ctx, f.catalog().names)
	if err != nil {
		return err
	}
	triggers, _ := f.query(ctx, f.catalog().triggers) // who may not read them sees none
	for _, row := range triggers {
		f.inserts[text(row[0])] += strings.ToLower(text(row[1]))
	}
	if others := f.catalog().schemas; others != "" {
		schemas, _ := f.query(ctx, others)
		for _, row := range schemas {
			f.elsewhere += ", " + text(row[0])
		}
		if f.elsewhere != "" {
			f.elsewhere = ". Other schemas have tables: " + f.elsewhere[2:] + ". Append search_path=SCHEMA to the parameters of the DSN"
		}
	}
	f.All = len(found)
	names, rows := []string{}, map[string][]any{}
	for _, row := range found {
		name := text(row[0])
		names, rows[name] = append(names, name), row
		if stem := strings.TrimRight(name, "0123456789"); stem != name && len(name)-len(stem) <= 3 {
			f.parts[stem]++
		}
	}
	patterns := monthly(names, f.Now.Add(14*time.Hour).Format("200601"))
	names = slices.DeleteFunc(names, func(name string) bool { // of a table for each month one is read
		p := patterns[name]
		return p != nil && p.Name != name || p == nil && months.MatchString(name) || slices.Contains(lists["ownTables"], name)
	})
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(likely(b, named), likely(a, named)), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), maxTables)] {
		if holds(rows[name][1]) && name != named || mapping.Quote(name) != "`"+name+"`" {
			continue
		}
		t := cmp.Or(patterns[name], &Table{})
		if err := f.describe(ctx, t, name); err != nil {
			return err
		}
		t.parent = holds(rows[name][2])
		f.Tables = append(f.Tables, t)
	}
	return nil
}

func (f *Facts) describe(ctx context.Context, t *Table, name string) error {
	described, err := f.store.Describe(ctx, name)
	if err != nil {
		return err
	}
	t.Table = described[name]
	if t.Name = cmp.Or(t.Name, name); t.View {
		return nil
	}
	rows, err := f.query(ctx, f.catalog().comments, name)
	for _, key := range slices.Sorted(maps.Keys(t.Columns)) {
		c := &column{Column: t.Columns[key], table: t, key: key, chosen: key == f.created, labels: map[string]string{}}
		c.Name = cmp.Or(c.Name, key)
		for _, row := range rows {
			if name := text(row[0]); strings.ToLower(name) == key {
				c.Name, c.labels = name, labels(text(row[1]), isInteger(c))
			}
		}
		t.columns = append(t.columns, c)
	}
	return err
}

// months matches tables for each month.
var months = regexp.MustCompile(`^(.*?)(20\d\d)(_?)(0[1-9]|1[0-2])$`)

// monthly returns a table for each month by the names of all its tables: that of the newest month up to now, with its pattern.
func monthly(names []string, now string) map[string]*Table {
	of, newest := map[string]*Table{}, map[string]*Table{}
	for _, name := range slices.Sorted(slices.Values(names)) {
		parts := months.FindStringSubmatch(name)
		if parts == nil || parts[1] == "" || parts[2]+parts[4] > now {
			continue
		}
		pattern := parts[1] + "{yyyy" + parts[3] + "MM}"
		t := cmp.Or(newest[pattern], &Table{Pattern: pattern})
		t.Name, t.Months = name, t.Months+1 // sorted by name is sorted by month
		of[name], newest[pattern] = t, t
	}
	maps.DeleteFunc(of, func(_ string, t *Table) bool { return t.Months < 2 })
	return of
}

// likely says how much the name of a table has to do with orders.
func likely(name, named string) (n int) {
	if name == named {
		return 100
	} else if isOrders(name) {
		n = 5
	}
	for _, list := range words("orderWords lineWords stockWords statusWords payWords") {
		if has(tokens(name), list) {
			n++
		}
	}
	return n
}

// readOrders reads the rows of a table of orders, and what its lines and stock have in common with it.
func (f *Facts) readOrders(ctx context.Context, t *Table) error {
	if err := f.sample(ctx, t); err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	for _, lines := range f.lineTables(t) {
		f.readReference(ctx, lines, t)
		for _, s := range f.stockTables(lines) {
			f.readLink(ctx, s.line, s.key)
		}
	}
	f.readMarks(ctx, t)
	f.readLookups(ctx, t)
	return nil
}

func (f *Facts) readReference(ctx context.Context, from, orders *Table) {
	for _, ref := range from.refersTo(orders) {
		for _, id := range orders.ids() {
			f.readLink(ctx, ref, id)
		}
	}
}

// readMarks marks the orders for which another table has a payment, and those in a log of the stock.
func (f *Facts) readMarks(ctx context.Context, t *Table) {
	t.paid.rows, t.logged.rows = make([]any, t.rows), make([]any, t.rows)
	for _, l := range f.Tables {
		of, at, into := tokens(l.Name), l.first("paidat"), t.paid.rows
		if at != nil && at.DefaultNow { // it says nothing of the money
			at = nil
		}
		mark, log := at, has(of, "skuWords") && has(of, "logWords")
		if at == nil && has(of, "payWords") {
			mark = cmp.Or(l.first("pay"), l.first("status"))
		}
		if l == t || l.View || !log && (mark == nil || has(of, "notPayments")) {
			continue
		} else if log {
			at, mark, into = nil, nil, t.logged.rows
		}
		f.readReference(ctx, l, t)
		ref, id := f.reference(l, t)
		if ref == nil || f.links[[2]*column{ref, id}].of == 0 {
			continue
		}
		rows, err := f.newest(ctx, l.numbered(), maxRows, ref, cmp.Or(mark, ref))
		if err != nil && !log {
			f.unread = append(f.unread, l.Name)
		}
		found, paidHere := map[string]bool{}, false
		for _, row := range rows {
			if log || at != nil && holds(row[1]) || at == nil && mark.says(text(row[1])) == paid {
				found[strings.ToLower(text(row[0]))] = true
			}
		}
		for row, v := range id.rows {
			if found[strings.ToLower(text(v))] { // a UUID may be in upper case
				into[row], paidHere = true, !log
			}
		}
		if paidHere {
			t.paidIn = append(t.paidIn, l.Name)
		}
	}
}

// sample reads the newest rows of a table, with those of its columns that have a role, or by whose values orders may differ.
func (f *Facts) sample(ctx context.Context, t *Table) error {
	of := map[*column]bool{}
	for _, id := range t.ids() {
		of[id] = true
	}
	for _, role := range words("status pay created due paidat paidtoo closedat deleted category method placed changed") {
		for _, c := range t.ranked(role) {
			of[c] = true
		}
	}
	columns := slices.DeleteFunc(slices.Clone(t.columns), func(c *column) bool { return !of[c] && !tells(c) })
	by := cmp.Or(t.numbered(), t.first("created"))
	found, err := f.newest(ctx, by, maxRows, columns...)
	if errors.Is(err, overdue.ErrSlow) && by != nil {
		err = fmt.Errorf("the newest ones could not be read in time, and older ones may say something else. An index on %s.%s helps; %w",
			t.Name, by.Name, err)
	}
	for i, c := range columns {
		for _, row := range found {
			c.rows = append(c.rows, row[i])
		}
	}
	t.read, t.rows, t.all = true, len(found), len(found) < maxRows
	return err
}

// newest reads the newest rows of a table by the order of a column; any rows if it is nil.
func (f *Facts) newest(ctx context.Context, by *column, rows int, columns ...*column) ([][]any, error) {
	query, limit := selecting(columns...), fmt.Sprintf(" LIMIT %d", rows)
	if by != nil {
		query += " ORDER BY " + mapping.Quote(by.Name) + " DESC"
	}
	return f.query(ctx, query+limit)
}

// uuids matches what can be compared with a column of UUIDs.
var uuids = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// readLink looks the newest values of a column up in a column of another table.
func (f *Facts) readLink(ctx context.Context, from, to *column) {
	name := [2]*column{from, to}
	numbers := isInteger(from) && isText(to) || isText(from) && isInteger(to) // in text
	if _, known := f.links[name]; known || !comparable(from, to) && !numbers {
		return
	}
	f.links[name] = link{}
	got, err := f.newest(ctx, from.table.numbered(), maxLinks, from)
	values := map[any]bool{}
	for _, row := range got {
		s := text(row[0])
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case s == "" || s == "0" || to.Type == "uuid" && from.Type != "uuid" && !uuids.MatchString(s):
		case !numbers:
			values[row[0]] = true
		case isText(to):
			values[s] = true
		case err == nil:
			values[n] = true
		}
	}
	if err != nil || len(values) == 0 {
		return
	}
	args, key := slices.Collect(maps.Keys(values)), mapping.Quote(to.Name)
	got, err = f.query(ctx, fmt.Sprintf("SELECT COUNT(DISTINCT %s) FROM %s WHERE %s IN (?%s)", key, mapping.Quote(to.table.Name), key,
		strings.Repeat(", ?", len(args)-1)), args...)
	if err == nil && len(got) > 0 {
		f.links[name] = link{int(number(got[0][0])), len(args)}
	}
}
