package propose

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// How much Read reads.
const (
	maxTables  = 120             // tables whose columns are read, those with the most likely names
	maxRows    = 20_000          // the newest rows of a table
	maxLinks   = 60              // values that are looked up in another table
	statements = 3 * time.Second // for each statement
)

// Facts is what a database tells of its tables.
type Facts struct {
	Now      time.Time // the database's clock
	Postgres bool
	All      int // tables and views of the database
	Tables   []*Table

	reader *reader
	links  map[string]link
	parts  map[string]int // how many tables have a name, with up to three digits at its end
}

// link says how many values of a column another table has.
type link struct{ found, of int }

// sure says that the values are those of the other table.
func (l link) sure() bool { return l.of > 0 && 10*l.found >= 8*l.of }

// Table is a table with what Read knows of it.
type Table struct {
	mapping.Table
	// Months says that there is a table for each month: Pattern has the placeholder, and Name is that of the newest month.
	Pattern string
	Months  int

	rows    *rows  // nil: not read
	unread  string // why its rows could not be read
	columns []string
	labels  map[string]map[string]string // of the values of a column, by comments and tables of statuses
}

// rows are the newest rows of a table.
type rows struct {
	all     bool // there are no others
	columns map[string]int
	values  [][]any
}

// of returns the values of a column.
func (r *rows) of(column string) []any {
	i, ok := r.columns[column]
	if !ok {
		return nil
	}
	all := make([]any, len(r.values))
	for n, row := range r.values {
		all[n] = row[i]
	}
	return all
}

// reader reads on one connection, whose session only reads, and for a short time.
type reader struct {
	conn     *sql.Conn
	store    *store.Store
	postgres bool
}

// Read reads what Propose needs. named is the table that the user names; "": none. Close the Facts in the end. The error wraps
// orderclose.ErrUnavailable if the database does not answer.
func Read(ctx context.Context, s *store.Store, named string) (*Facts, error) {
	if err := s.Ping(ctx); err != nil {
		return nil, err
	}
	conn, err := s.DB().Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the tables: %w", err)
	}
	f := &Facts{Postgres: s.Dialect() == store.Postgres, links: map[string]link{}, reader: &reader{conn: conn, store: s}}
	f.reader.postgres = f.Postgres
	f.reader.bound(ctx)
	if f.Now, err = s.Now(ctx); err == nil {
		err = f.readTables(ctx, named)
	}
	for _, c := range f.candidates(named) {
		if err == nil && c.against == "" {
			if err := f.readOrders(ctx, c.Table); err != nil {
				c.unread = "its rows cannot be read: " + err.Error()
			}
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read the tables: %w", err)
	}
	return f, nil
}

// Close gives the connection back. The session keeps its limits, so the connection ends.
func (f *Facts) Close() {
	_ = f.reader.conn.Raw(func(any) error { return sql.ErrConnDone })
	_ = f.reader.conn.Close()
}

// bound bounds each statement of the session. A server that does not know one of the settings has another.
func (r *reader) bound(ctx context.Context) {
	ms := statements.Milliseconds()
	all := []string{fmt.Sprintf("SET SESSION max_execution_time = %d", ms), fmt.Sprintf("SET SESSION max_statement_time = %d", ms/1000),
		"SET SESSION TRANSACTION READ ONLY", "SET SESSION lock_wait_timeout = 1"}
	if r.postgres {
		all = []string{fmt.Sprintf("SET statement_timeout = %d", ms), "SET default_transaction_read_only = on", "SET lock_timeout = 1000"}
	}
	for _, statement := range all {
		_, _ = r.conn.ExecContext(ctx, statement)
	}
}

// query returns the rows of a query, each value as the driver has it, with copies of bytes as text.
func (r *reader) query(ctx context.Context, query string, args ...any) (all [][]any, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*statements)
	defer cancel()
	found, err := r.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	columns, err := found.Columns()
	for err == nil && found.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		err = found.Scan(into...)
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = string(b)
			}
		}
		all = append(all, row)
	}
	return all, cmp.Or(err, found.Err())
}

// Queries for the names of tables, and whether each is a view, and for the comments of a table.
const (
	mysqlNames    = "SELECT table_name, table_type LIKE '%VIEW%' FROM information_schema.tables WHERE table_schema = DATABASE()"
	postgresNames = "SELECT c.relname, c.relkind IN ('v', 'm') FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace" +
		" AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition"
	mysqlComments    = "SELECT column_name, column_comment FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?"
	postgresComments = "SELECT a.attname, d.description FROM pg_class c JOIN pg_description d ON d.classoid = 'pg_class'::regclass AND d.objoid = c.oid" +
		" JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND a.attnum > 0" +
		" WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ?"
)

func (f *Facts) readTables(ctx context.Context, named string) error {
	list, comments := mysqlNames, mysqlComments
	if f.Postgres {
		list, comments = postgresNames, postgresComments
	}
	found, err := f.reader.query(ctx, list)
	if err != nil {
		return err
	}
	f.All = len(found)
	var names []string
	views := map[string]bool{}
	for _, row := range found {
		name := text(row[0])
		names = append(names, name)
		views[name] = yes(row[1])
	}
	f.parts = map[string]int{}
	for _, name := range names {
		if stem := strings.TrimRight(name, "0123456789"); stem != name && len(name)-len(stem) <= 3 {
			f.parts[stem]++
		}
	}
	patterns := monthly(names, f.Now.Add(14*time.Hour).Format("200601"))
	names = slices.DeleteFunc(names, func(name string) bool { // of a table for each month one is read
		p := patterns[name]
		return p != nil && p.Name != name || p == nil && months.MatchString(name)
	})
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(likely(b, named), likely(a, named)), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), maxTables)] {
		if views[name] && name != named || mapping.Quote(name) != "`"+name+"`" {
			continue
		}
		described, err := f.reader.store.Describe(ctx, name)
		if err != nil {
			return err
		}
		t := &Table{Table: described[name], labels: map[string]map[string]string{}}
		if p := patterns[name]; p != nil {
			t.Pattern, t.Months = p.Pattern, p.Months
		}
		if t.Name = cmp.Or(t.Name, name); t.View {
			f.Tables = append(f.Tables, t)
			continue
		}
		rows, err := f.reader.query(ctx, comments, name)
		if err != nil {
			return err
		}
		for _, row := range rows {
			column := strings.ToLower(text(row[0]))
			c := t.Columns[column]
			c.Name, t.labels[column] = text(row[0]), labels(text(row[1]), isInteger(c))
			t.Columns[column] = c
		}
		t.columns = slices.Sorted(maps.Keys(t.Columns))
		f.Tables = append(f.Tables, t)
	}
	return nil
}

// monthly returns a table for each month by the names of all its tables: that of the newest month up to now, with its pattern.
func monthly(names []string, now string) map[string]*Table {
	of, newest := map[string]*Table{}, map[string]*Table{}
	for _, name := range slices.Sorted(slices.Values(names)) {
		parts := months.FindStringSubmatch(name)
		if parts == nil || parts[1] == "" || parts[2]+parts[4] > now {
			continue
		}
		pattern := parts[1] + "{yyyy" + parts[3] + "MM}"
		t := newest[pattern]
		if t == nil {
			t = &Table{Pattern: pattern}
			newest[pattern] = t
		}
		t.Name, t.Months = name, t.Months+1 // sorted by name is sorted by month
		of[name] = t
	}
	maps.DeleteFunc(of, func(_ string, t *Table) bool { return t.Months < 2 })
	return of
}

// likely says how much the name of a table has to do with orders.
func likely(name, named string) (n int) {
	of := tokens(name)
	if name == named {
		return 100
	}
	for _, list := range words("orderWords lineWords stockWords") {
		if has(of, list) {
			n += 3
		}
	}
	if has(of, "statusWords") {
		n += 4
	}
	for _, w := range of {
		if strings.Contains(w, "order") || strings.Contains(w, "book") {
			n += 3
		}
	}
	return n - len(of)/4
}

// sample reads the newest rows of a table, with those of its columns that have a role.
func (f *Facts) sample(ctx context.Context, t *Table, columns []string) error {
	if t.rows != nil {
		return nil
	}
	t.rows = &rows{columns: map[string]int{}}
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i], t.rows.columns[c] = mapping.Quote(t.real(c)), i
	}
	query := "SELECT " + strings.Join(list, ", ") + " FROM " + mapping.Quote(t.Name)
	var err error
	for _, order := range append(t.newestBy(), "") {
		if t.rows.values, err = f.reader.query(ctx, fmt.Sprintf("%s%s LIMIT %d", query, order, maxRows)); err == nil {
			break
		}
	}
	t.rows.all = len(t.rows.values) < maxRows
	return err
}

// newestBy returns how the newest rows are read: by an index on the creation time, by a numbered key, or by sorting.
func (t *Table) newestBy() (by []string) {
	created := t.first("created", isTime)
	led := func(column string) bool {
		return slices.ContainsFunc(t.Indexes, func(i mapping.Index) bool { return i.Where == "" && i.Columns[0] == column })
	}
	if created != "" && led(created) {
		by = append(by, created)
	}
	if key := t.key(); key != "" && isInteger(t.Columns[key]) {
		by = append(by, key)
	}
	if created != "" {
		by = append(by, created)
	}
	for i, c := range by {
		by[i] = " ORDER BY " + mapping.Quote(t.real(c)) + " DESC"
		if t.Postgres && t.Columns[c].Nullable {
			by[i] += " NULLS LAST"
		}
	}
	return by
}

// readLink looks the newest values of a column up in another table.
func (f *Facts) readLink(ctx context.Context, from *Table, column string, to *Table, key string) {
	name := linkName(from, column, to, key)
	if _, known := f.links[name]; known || !comparable(from.Columns[column], to.Columns[key]) {
		return
	}
	f.links[name] = link{}
	by := ""
	if k := from.key(); k != "" && isInteger(from.Columns[k]) {
		by = " ORDER BY " + mapping.Quote(from.real(k)) + " DESC"
	}
	c, k := mapping.Quote(from.real(column)), mapping.Quote(to.real(key))
	got, err := f.reader.query(ctx, fmt.Sprintf("SELECT %s FROM %s%s LIMIT %d", c, mapping.Quote(from.Name), by, maxLinks))
	values := map[any]bool{}
	for _, row := range got {
		if s := text(row[0]); s != "" && s != "0" {
			values[row[0]] = true
		}
	}
	if err != nil || len(values) == 0 {
		return
	}
	args := slices.Collect(maps.Keys(values))
	got, err = f.reader.query(ctx, fmt.Sprintf("SELECT COUNT(DISTINCT %s) FROM %s WHERE %s IN (?%s)", k, mapping.Quote(to.Name), k,
		strings.Repeat(", ?", len(args)-1)), args...)
	if err == nil && len(got) > 0 {
		f.links[name] = link{int(number(got[0][0])), len(args)}
	}
}

func linkName(from *Table, column string, to *Table, key string) string {
	return from.Name + "." + column + " " + to.Name + "." + key
}

// link returns what readLink has found.
func (f *Facts) link(from *Table, column string, to *Table, key string) link {
	return f.links[linkName(from, column, to, key)]
}
