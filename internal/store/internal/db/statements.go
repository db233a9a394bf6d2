package db

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// statements holds the SQL on the mapped tables, written once. In a mapping with shards,
// each month has its own statements on orders and lines.
type statements struct {
	M      *mapping.Mapping
	D      Dialect
	Tables *tables

	pipeline string // of order_delays, with Mapping.ByRule
	// Due is the codec of DueOf and dueWith, and column that of Mapping.Due. With Mapping.ByRule the two differ.
	Due, column, Created, PaidAt, lock mapping.Codec
	DueOf                              func(orders string) string          // writes the due time of an order in a table
	dueWith                            func(orders string, d delay) string // the same of an order with the delay
	ClosedAt                           []mapping.Codec                     // of Mapping.ClosedAt
	StockLocks                         []mapping.Codec                     // of Mapping.Stock

	Where     condition                 // of orders that Mapping.Where includes
	LineWhere condition                 // of lines that Items.Where includes
	old       atomic.Pointer[time.Time] // see learnOld; nil: it is not known yet
}

// Table is one table of orders and its lines, with the statements on them. The comment of
// a statement lists its arguments.
type Table struct {
	Name  string // table of orders, as the mapping writes it
	Items string // table of lines; empty: none
	month mapping.Month

	Lock     string // open, closed or paid, now, ids
	LockFree string // the same, without the rows that other transactions lock
	Read     string // the same, without locking
	Exists   string // ids: those that the table has
	Has      string // ids, status: how many have it
	Triggers string // how many triggers may change what a close writes
	Pay      string // paid, [constants], [paid at], [lock], ids, open; empty: the mapping names no paid status
	Payable  string // open, closed or paid, now, id; locks the order's row
	// Payment has the arguments payment, [lock], id; empty: the mapping names no column for it. Without the lock, a
	// database that sets the column by itself could set it back to what it was. Repay also changes the version,
	// of an order that this transaction does not change otherwise.
	Payment, Repay string
	Mark           string // to, [constants], [closed at], [lock], ids, from, now
	Lines          string // statements.LineArgs
	CountedLines   string // statements.counted
	// LockLines is CountedLines for a close. It fails at once if a transaction changes one of the lines, and
	// keeps others from changing them: a line that another transaction removes, whose stock that
	// transaction returns, must not be returned by the close too.
	LockLines string
}

// newStatements writes the statements of a mapping, and returns an error if the mapping has
// problems.
func newStatements(m *mapping.Mapping, d Dialect, pipeline string) (*statements, error) {
	q := &statements{M: m.WithDefaults(), D: d, pipeline: pipeline}
	if err := mapping.Err(q.M.Check()); err != nil {
		return nil, fmt.Errorf("the mapping of the orders' tables: %w", err)
	}
	q.column, q.Created, q.PaidAt, q.lock = codecOf(&q.M.Due), codecOf(q.M.Created), codecOf(q.M.PaidAt), codecOf(q.M.Lock)
	for _, t := range q.M.ClosedAt {
		q.ClosedAt = append(q.ClosedAt, codecOf(t))
	}
	for _, s := range q.M.Stock {
		q.StockLocks = append(q.StockLocks, codecOf(s.Lock))
	}
	q.Due, q.DueOf = q.column, func(string) string { return mapping.Quote(q.M.Due.Column) }
	if q.dueWith = (func(string, delay) string { return mapping.Quote(q.M.Due.Column) }); q.M.ByRule {
		q.dueByRule()
	}
	q.Where = whereOf(q.M.Where)
	if q.M.Items != nil {
		q.LineWhere = whereOf(q.M.Items.Where)
	}
	var err error
	q.Tables, err = newTables(q)
	return q, err
}

// codecOf returns the codec of a column in which Check has found no problem: it has no error.
func codecOf(column *mapping.TimeColumn) mapping.Codec {
	c, _ := column.Codec()
	return c
}

// referenceMapping returns the mapping of the reference schema as the dialect's migrations
// create it.
func referenceMapping(d Dialect) *mapping.Mapping {
	m := mapping.Reference()
	if d.Times.Type != "" {
		for _, t := range m.TimeColumns() {
			t.Type, t.Zone, t.Precision = d.Times.Type, "", d.Times.Precision
		}
	}
	return m
}

// table writes the statements of one month's table, or of the only table.
func (q *statements) table(month mapping.Month) *Table {
	t := &Table{Name: monthly(q.M.Orders, month), month: month}
	if q.M.Items != nil {
		t.Items = monthly(q.M.Items.Table, month)
	}
	t.Read = q.readOrders(t.Name)
	t.Lock, t.LockFree = t.Read+q.D.ForUpdate, t.Read+q.D.SkipLocked
	id := mapping.Quote(q.M.ID.Column)
	read := q.M.ID.Read(q.M.ID.Column)
	t.Exists = fmt.Sprintf("SELECT %s FROM %s%s WHERE %s IN ?", read, mapping.Quote(t.Name), q.D.Hint(q.M.ID.Index), id)
	t.Pay, t.Mark = q.pay(t.Name), q.mark(t.Name)
	status := mapping.Quote(q.M.Status.Column)
	t.Has = fmt.Sprintf("SELECT COUNT(*) FROM %s%s WHERE %s IN ? AND %s%s = ?", mapping.Quote(t.Name), q.D.Hint(q.M.ID.Index), id, q.D.Unindexed, status)
	t.Triggers = "SELECT " + q.triggers(t.Name)
	t.Payable = fmt.Sprintf("SELECT %s, %s, CASE WHEN %s IN ? THEN 1 ELSE 0 END, %[3]s, %s, ? FROM %s%s WHERE %[8]s IN (?)"+AllRows+"%[7]s",
		read, q.ReadState(), status, paymentOf(q.M), mapping.Quote(t.Name), q.D.Hint(q.M.ID.Index), q.D.ForUpdate, id)
	if q.M.PaymentID != "" {
		set := fmt.Sprintf("UPDATE %s SET %s = ?", mapping.Quote(t.Name), mapping.Quote(q.M.PaymentID))
		where := fmt.Sprintf(" WHERE %s = ?", id)
		t.Payment, t.Repay = q.inUTC(set+changeLock("", "", q.M.Lock)+where), q.inUTC(set+changeLock("", q.M.Version, q.M.Lock)+where)
	}
	if t.Items != "" {
		list, of := q.lines(t.Items)
		t.Lines, t.CountedLines = list+of, q.counted(list+of, of)
		t.LockLines = q.counted(list+of+q.D.Share("NOWAIT"), of) //mutant:lines-read-unlocked
	}
	return t
}

// DecodeDue decodes a due time. NULL and each time that means never are orderclose.NeverDue: a time in a western
// zone may be in the year 10000, which JSON cannot have. Other values that are no point in time, such as 0, are
// the zero time.
func (q *statements) DecodeDue(v any) (due time.Time, err error) {
	if v == nil {
		return orderclose.NeverDue, nil //mutant:null-is-due
	}
	if due, _, err = q.Due.Decode(v); orderclose.IsNever(due) {
		due = orderclose.NeverDue
	}
	return due, err
}

// dueColumn is where readOrders reads the mapped column of Mapping.Due, also if the due time is computed from it.
const dueColumn = 6

// CheckDueType returns an error if the column from which due times are read has another type than the mapping says. It may have been altered
// since CheckMapping: in a TIMESTAMP that was a DATETIME of another zone all times are hours off. rows are those of readOrders, whose lock keeps the type.
func (q *statements) CheckDueType(rows *sql.Rows) error {
	types, err := rows.ColumnTypes()
	if err != nil {
		return err
	}
	want := q.M.Due.ServerType(q.D.LocalTime)
	if has := types[dueColumn].DatabaseTypeName(); want != "" && has != want {
		return fmt.Errorf("column %s has the type %s, and the mapping says %s: correct the mapping, or change the column back", q.M.Due.Column, has, want)
	}
	return nil
}

// Attributes writes the expression of Mapping.Attributes, for decodeAttributes.
func (q *statements) Attributes() string {
	if len(q.M.Attributes) == 0 {
		return "NULL"
	}
	columns := make([]string, len(q.M.Attributes))
	for i, a := range q.M.Attributes {
		columns[i] = mapping.Quote(a.Column)
	}
	return q.D.JSONArray + "(" + strings.Join(columns, ", ") + ")"
}

// DecodeAttributes returns the attributes by name, without those that are NULL. Numbers have the type json.Number.
func (q *statements) DecodeAttributes(v any) (map[string]any, error) {
	var text []byte
	switch v := v.(type) {
	case []byte:
		text = v
	case string:
		text = []byte(v)
	default:
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var values []any
	if err := d.Decode(&values); err != nil {
		return nil, fmt.Errorf("the attributes %q are no JSON: %w", text, err)
	}
	all := map[string]any{}
	for i, a := range q.M.Attributes {
		if i < len(values) && values[i] != nil {
			all[a.Name] = values[i]
		}
	}
	return all, nil
}

// monthly returns the name of the month's table if name is a pattern, else name.
func monthly(name string, month mapping.Month) string {
	if p, err := mapping.ParsePattern(name); err == nil {
		return p.Table(month)
	}
	return name
}

// State is what a status means for closing.
type State int8

const (
	StateOpen     State = 0
	StatePaid     State = 1
	StateClosed   State = 2
	StateExcluded State = 3 // unpaid, but Mapping.Where excludes the order
)

// ReadState writes the expression of an order's state. The database compares the status, by the rules of
// the column, as it does in the compare-and-set.
func (q *statements) ReadState() string {
	listed, rest := StateClosed, StatePaid
	if q.ListsPaid() {
		listed, rest = StatePaid, StateClosed
	}
	open := strconv.Itoa(int(StateOpen))
	if q.Where.SQL != "" {
		open = fmt.Sprintf("CASE WHEN %s THEN %d ELSE %d END", q.Where.SQL, StateOpen, StateExcluded)
	}
	status := mapping.Quote(q.M.Status.Column)
	return fmt.Sprintf("CASE WHEN %s IN ? THEN %s WHEN %s IN ? THEN %d ELSE %d END", status, open, status, listed, rest)
}

// Category writes the expression of an order's category as text: PostgreSQL fills a char(n) with spaces, and tables of months may have several collations.
func (q *statements) Category() string {
	return fmt.Sprintf(q.D.TextSQL, OrElse(q.M.Category, "''"))
}

// IDArg is Key.Arg of the id of an order. It returns false if the database has no such numbers.
func (q *statements) IDArg(id string) (any, bool) {
	arg, ok := q.M.ID.Arg(id)
	_, unsigned := arg.(uint64)
	return arg, ok && (q.D.Unsigned || !unsigned)
}

// inUTC lets an UPDATE write to columns of the type TIMESTAMP, whose values are in the zone of the session: a session of the shop may have
// any. On MySQL the hour that clocks show twice may be the other one.
func (q *statements) inUTC(update string) string {
	const utc = "CONVERT_TZ(?, '+00:00', @@time_zone)"
	var all []string
	if at := q.M.PaidAt; at != nil && at.Type == mapping.Timestamp {
		all = append(all, mapping.Quote(at.Column)+" = ?", mapping.Quote(at.Column)+" = "+utc)
	}
	if q.M.Lock != nil && q.M.Lock.Type == mapping.Timestamp {
		all = append(all, ">= ?", ">= "+utc, "ELSE ?", "ELSE "+utc)
	}
	if len(all) == 0 {
		return update
	}
	return "/*M!100600 SET STATEMENT time_zone = '+00:00' FOR */ " + strings.NewReplacer(all...).Replace(update)
}

// paymentOf writes the expression of the payment that paid an order; empty: none, or it is unknown.
func paymentOf(m *mapping.Mapping) string {
	if m.PaymentID == "" {
		return "''"
	}
	return "COALESCE(" + mapping.Quote(m.PaymentID) + ", '')"
}

// readOrders writes the SELECT of orders by id.
func (q *statements) readOrders(orders string) string {
	id := mapping.Quote(q.M.ID.Column)
	version := "-1"
	if q.M.Version != "" {
		version = "COALESCE(" + mapping.Quote(q.M.Version) + ", 0)"
	}
	further := ""
	for _, c := range q.M.EventColumns {
		further += ", " + mapping.Quote(c)
	}
	return fmt.Sprintf("SELECT %s, %s, %s, %s, %s, ?, %s, %s%s FROM %s%s WHERE %s IN ? ORDER BY %s",
		q.M.ID.Read(q.M.ID.Column), q.Category(), q.ReadState(), q.DueOf(orders), version, mapping.Quote(q.M.Due.Column), q.D.RowTable, further,
		mapping.Quote(orders), q.D.Hint(q.M.ID.Index), id, id)
}

// ListsPaid reports whether the mapping lists only paid values. Then all other values count
// as closed.
func (q *statements) ListsPaid() bool { return len(q.M.Status.Paid) > 0 && len(q.M.Status.Closed) == 0 }

// PayableArgs returns the arguments of Table.Payable.
func (q *statements) PayableArgs(id any) []any {
	var named []any
	for _, v := range slices.Concat(q.M.Status.From, []mapping.Value{q.M.Status.To}, q.M.Status.Paid, q.M.Status.Closed) {
		named = append(named, v.Arg())
	}
	return append(q.StateArgs(), named, q.D.Millis(), id)
}

// StateArgs returns the arguments of readState.
func (q *statements) StateArgs() []any {
	listed := append([]mapping.Value{q.M.Status.To}, q.M.Status.Closed...)
	if q.ListsPaid() {
		listed = q.M.Status.Paid
	}
	values := make([]any, len(listed))
	for i, v := range listed {
		values[i] = v.Arg()
	}
	args := append([]any{q.M.Status.From.Args()}, q.Where.Args...)
	return append(args, values)
}

// condition is a part of a WHERE, with its arguments; empty: there is none.
type condition struct {
	SQL  string
	Args []any
}

// whereOf writes conditions as Mapping.Where has them. A number with a fraction is written as such: databases compare a text with a DECIMAL as
// floating point.
func whereOf(columns []mapping.Condition) (c condition) {
	var all []string
	for _, w := range columns {
		name, null, list := mapping.Quote(w.Column), slices.Contains(w.Any, mapping.Value{}), []string{}
		for _, v := range w.Any {
			switch arg := v.Arg(); {
			case v == (mapping.Value{}):
			case v.Number && arg == any(v.Text):
				list = append(list, v.Text)
			default:
				list, c.Args = append(list, "?"), append(c.Args, arg)
			}
		}
		values := strings.Join(list, ", ")
		switch {
		case len(list) == 0 && w.Not:
			all = append(all, name+" IS NOT NULL")
		case len(list) == 0:
			all = append(all, name+" IS NULL")
		case w.Not && null:
			all = append(all, name+" NOT IN ("+values+")") // which is not true of NULL
		case w.Not:
			all = append(all, "("+name+" IS NULL OR "+name+" NOT IN ("+values+"))")
		case null:
			all = append(all, "("+name+" IS NULL OR "+name+" IN ("+values+"))")
		case len(list) == 1:
			all = append(all, name+" = "+values)
		default:
			all = append(all, name+" IN ("+values+")")
		}
	}
	c.SQL = strings.Join(all, " AND ")
	return c
}

// triggers writes the expression of the triggers of what a close writes.
func (q *statements) triggers(orders string) string {
	written := []string{orders, "receipts", "outbox_events"}
	for _, s := range q.M.Stock {
		written = append(written, s.Table)
	}
	return q.D.Triggers(append(written, q.onCloseTables()...))
}

// onCloseTables returns the tables that the statements of Mapping.OnClose write.
func (q *statements) onCloseTables() (names []string) {
	for _, statement := range q.M.OnClose {
		if name, _, _ := mapping.OnCloseTable(q.D.Folded(statement)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// pay writes the compare-and-set of a payment.
func (q *statements) pay(orders string) string {
	if _, ok := q.M.Status.Pay(); !ok {
		return ""
	}
	return q.inUTC(fmt.Sprintf("UPDATE %s%s SET %s WHERE %s IN ? AND %s%s IN ?", mapping.Quote(orders), q.D.Hint(q.M.ID.Index),
		q.assignments(q.M.SetPaid, q.M.PaidAt.Name()),
		mapping.Quote(q.M.ID.Column), q.D.Unindexed, mapping.Quote(q.M.Status.Column)))
}

// OrElse returns the quoted column, or otherwise if there is no column.
func OrElse(column, otherwise string) string {
	if column == "" {
		return otherwise
	}
	return mapping.Quote(column)
}

// mark writes the compare-and-set of a close.
func (q *statements) mark(orders string) string {
	var times []string
	for _, t := range q.M.ClosedAt {
		times = append(times, t.Column)
	}
	return fmt.Sprintf("UPDATE %s%s SET %s WHERE %s IN ? AND %s%s IN ? AND %s <= ?", mapping.Quote(orders), q.D.Hint(q.M.ID.Index), //mutant:no-cas,before-due
		q.assignments(q.M.Set, times...), mapping.Quote(q.M.ID.Column), q.D.Unindexed, mapping.Quote(q.M.Status.Column), q.DueOf(orders))
}

// assignments writes the assignments of an UPDATE that changes the status: the status, constants, the
// columns with the time of the change, without empty names, and the locks.
func (q *statements) assignments(constants []mapping.ColumnValue, at ...string) string {
	set := mapping.Quote(q.M.Status.Column) + " = ?"
	for _, a := range constants {
		set += ", " + mapping.Quote(a.Column) + " = ?"
	}
	for _, column := range at {
		if column != "" {
			set += ", " + mapping.Quote(column) + " = ?"
		}
	}
	return set + changeLock("", q.M.Version, q.M.Lock)
}

// PayArgs returns the arguments of Table.Pay.
func (q *statements) PayArgs(paid mapping.Value, ids []any, now time.Time) []any {
	args := assigned(paid, q.M.SetPaid)
	if q.M.PaidAt != nil {
		args = append(args, q.PaidAt.Arg(now))
	}
	return append(append(args, q.LockArgs(now)...), ids, q.M.Status.From.Args())
}

// MarkArgs returns the arguments of Table.Mark.
func (q *statements) MarkArgs(ids []any, now time.Time) []any {
	args := assigned(q.M.Status.To, q.M.Set)
	for _, at := range q.ClosedAt {
		args = append(args, at.Arg(now))
	}
	return append(append(args, q.LockArgs(now)...), ids, q.M.Status.From.Args(), q.Due.Arg(now))
}

// assigned returns the first arguments of assignments.
func assigned(status mapping.Value, constants []mapping.ColumnValue) []any {
	args := []any{status.Arg()}
	for _, a := range constants {
		args = append(args, a.Value.Arg())
	}
	return args
}

// Args returns ids as arguments of the type of the id column.
func (q *statements) Args(ids []string) []any {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i], _ = q.M.ID.Arg(id)
	}
	return args
}

// SampleIDs returns what stands for ids in an EXPLAIN. The ids have the type of the id column: a
// number finds no row of a column of text through an index. With one id the databases look for its row
// already, and end the plan there if no order has it.
func (q *statements) SampleIDs() string {
	switch q.M.ID.Type {
	case mapping.Integer:
		return "1, 2"
	case mapping.UUIDBinary, mapping.UUIDSwapped:
		return "UNHEX('00000000000000000000000000000001'), UNHEX('00000000000000000000000000000002')"
	case mapping.UUID:
		return "'00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002'"
	}
	return "'1', '2'"
}

// lines writes the SELECT of lines in two parts, of which the second begins with FROM: order, SKU, quantity, location, and the keys of further
// tables of stock.
func (q *statements) lines(from string) (list, of string) {
	i := q.M.Items
	columns := []string{q.M.ID.Read(i.Order), mapping.Key{}.Read(i.SKU), mapping.Quote(i.Quantity), OrElse(i.Location, "NULL")}
	for n, s := range q.M.Stock {
		if read := s.SKU.Read(q.M.LineKey(s)); n == 0 {
			columns[1] = read
		} else {
			columns = append(columns, read)
		}
	}
	for n := range columns { // counted needs different names
		columns[n] += " AS c" + strconv.Itoa(n)
	}
	where := ""
	if q.LineWhere.SQL != "" {
		where = " AND " + q.LineWhere.SQL
	}
	return "SELECT " + strings.Join(columns, ", "),
		fmt.Sprintf(" FROM %s%s WHERE %s IN ?%s", mapping.Quote(from), q.D.Hint(i.Index), mapping.Quote(i.Order), where)
}

// counted adds one row to a SELECT of lines, whose last column is how many lines there are: a server, or a proxy before it, may cut an answer
// without a word. Its arguments are LineArgs, twice. With COUNT(*), for which the index is enough, MariaDB may read the whole index.
func (q *statements) counted(lines, of string) string {
	return "SELECT v.*, 0 FROM (" + lines + ") AS v UNION ALL SELECT " + strings.Repeat("NULL, ", 4+max(len(q.M.Stock)-1, 0)) +
		"COUNT(CASE WHEN " + mapping.Quote(q.M.Items.Quantity) + " IS NULL THEN 1 ELSE 1 END)" + of
}

// LineArgs returns the arguments of Table.Lines.
func (q *statements) LineArgs(ids []string) []any {
	return append([]any{q.Args(ids)}, q.LineWhere.Args...)
}

// changeLock writes the assignments, behind others, of the columns by which the shop's code locks a row
// optimistically: that code reads the row, and later writes it only if the column has the same value. A number
// grows by one. A time becomes the present, or one step of the column more than it was: in one second two
// changes may have one present. row is the prefix of the columns that are read. Its arguments are LockArgs.
func changeLock(row, version string, lock *mapping.TimeColumn) (set string) {
	if version != "" {
		set = fmt.Sprintf(", %s = COALESCE(%s%[1]s, 0) + 1", mapping.Quote(version), row)
	}
	if lock != nil {
		set += fmt.Sprintf(", %s = CASE WHEN %s%[1]s >= ? THEN %[2]s%[1]s + %[3]s ELSE ? END", mapping.Quote(lock.Column), row, lockStep(lock))
	}
	return set
}

// lockStep writes the smallest difference of two values of a column, as all servers take it. SQLite takes that of
// unix times only.
func lockStep(lock *mapping.TimeColumn) string {
	if lock.Type == mapping.UnixSeconds || lock.Type == mapping.UnixMillis {
		return "1"
	}
	return fmt.Sprintf("INTERVAL '%s' SECOND",
		map[mapping.Precision]string{mapping.Seconds: "1", mapping.Millis: "0.001", mapping.Micros: "0.000001"}[lock.Precision])
}

// LockArgs returns the arguments of changeLock for an order.
func (q *statements) LockArgs(now time.Time) []any {
	if q.M.Lock == nil {
		return nil
	}
	return []any{q.lock.Arg(now), q.lock.Arg(now)}
}

// OnCloseSQL returns a statement of Mapping.OnClose with a list of ids, or of placeholders for ids.
func OnCloseSQL(statement, ids string) string {
	return strings.Replace(statement, mapping.IDs, ids, 1)
}
