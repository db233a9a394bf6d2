package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// statements holds the SQL on the mapped tables, written once. In a mapping with shards,
// each month has its own statements on orders and lines.
type statements struct {
	m      *mapping.Mapping
	d      Dialect
	tables *tables

	pipeline string // of order_delays, with Mapping.ByRule
	// due is the codec of dueOf and dueWith, and column that of Mapping.Due. With Mapping.ByRule the two differ.
	due, column, created, paidAt, lock mapping.Codec
	dueOf                              func(orders string) string          // writes the due time of an order in a table
	dueWith                            func(orders string, d delay) string // the same of an order with the delay
	closedAt                           []mapping.Codec                     // of Mapping.ClosedAt
	stockLocks                         []mapping.Codec                     // of Mapping.Stock

	where     condition // of orders that Mapping.Where includes
	excludes  bool      // the mapping excludes orders
	lineWhere condition // of lines that Items.Where includes
}

// table is one table of orders and its lines, with the statements on them. The comment of
// a statement lists its arguments.
type table struct {
	name  string // table of orders, as the mapping writes it
	items string // table of lines; empty: none
	month mapping.Month

	lock     string // open, closed or paid, now, ids
	lockFree string // the same, without the rows that other transactions lock
	read     string // the same, without locking
	exists   string // ids: those that the table has
	has      string // ids, status: how many have it, and 0
	count    string // the same, and how many triggers may change what a close writes
	pay      string // paid, [constants], [paid at], [lock], ids, open; empty: the mapping names no paid status
	payable  string // open, closed or paid, now, id; locks the order's row
	// payment has the arguments payment, [lock], id; empty: the mapping names no column for it. Without the lock, a
	// database that sets the column by itself could set it back to what it was. repay also changes the version,
	// of an order that this transaction does not change otherwise.
	payment, repay string
	mark           string // to, [constants], [closed at], [lock], ids, from, now
	lines          string // statements.lineArgs
	countedLines   string // statements.counted
	// lockLines is countedLines for a close. It fails at once if a transaction changes one of the lines, and
	// keeps others from changing them: a line that another transaction removes, whose stock that
	// transaction returns, must not be returned by the close too.
	lockLines string
}

// newStatements writes the statements of a mapping, and returns an error if the mapping has
// problems.
func newStatements(m *mapping.Mapping, d Dialect, pipeline string) (*statements, error) {
	q := &statements{m: m.WithDefaults(), d: d, pipeline: pipeline}
	if err := mapping.Err(q.m.Check()); err != nil {
		return nil, fmt.Errorf("the mapping of the orders' tables: %w", err)
	}
	q.column, q.created, q.paidAt, q.lock = codecOf(&q.m.Due), codecOf(q.m.Created), codecOf(q.m.PaidAt), codecOf(q.m.Lock)
	for _, t := range q.m.ClosedAt {
		q.closedAt = append(q.closedAt, codecOf(t))
	}
	for _, s := range q.m.Stock {
		q.stockLocks = append(q.stockLocks, codecOf(s.Lock))
	}
	q.due, q.dueOf = q.column, func(string) string { return mapping.Quote(q.m.Due.Column) }
	if q.dueWith = (func(string, delay) string { return mapping.Quote(q.m.Due.Column) }); q.m.ByRule {
		q.dueByRule()
	}
	q.where = whereOf(q.m.Where)
	q.excludes = len(q.m.Where) > 0 || !q.m.NotBefore.IsZero()
	if q.m.Items != nil {
		q.lineWhere = whereOf(q.m.Items.Where)
	}
	var err error
	q.tables, err = newTables(q)
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
	if d.UnixMillis {
		for _, t := range m.TimeColumns() {
			t.Type, t.Zone, t.Precision = mapping.UnixMillis, "", ""
		}
	}
	if d.Name == Postgres {
		for _, t := range m.TimeColumns() {
			t.Type, t.Zone = mapping.TimestampTZ, ""
		}
	}
	return m
}

// table writes the statements of one month's table, or of the only table.
func (q *statements) table(month mapping.Month) *table {
	t := &table{name: monthly(q.m.Orders, month), month: month}
	if q.m.Items != nil {
		t.items = monthly(q.m.Items.Table, month)
	}
	t.read = q.readOrders(t.name)
	t.lock, t.lockFree = t.read+q.d.lock, t.read+q.d.skipLocked
	id := mapping.Quote(q.m.ID.Column)
	read := q.m.ID.Read(q.m.ID.Column)
	t.exists = fmt.Sprintf("SELECT %s FROM %s%s WHERE %s IN ?", read, mapping.Quote(t.name), q.d.hint(q.m.ID.Index), id)
	t.pay, t.mark = q.pay(t.name), q.mark(t.name)
	t.has, t.count = q.countStatus(t.name, "0"), q.countStatus(t.name, q.triggers(t.name))
	status := mapping.Quote(q.m.Status.Column)
	t.payable = fmt.Sprintf("SELECT %s, %s, CASE WHEN %s IN ? THEN 1 ELSE 0 END, %[3]s, %s, ? FROM %s%s WHERE %[8]s IN (?)"+allRows+"%[7]s",
		q.trimmed(read), q.readState(), status, q.trimmed(paymentOf(q.m)), mapping.Quote(t.name), q.d.hint(q.m.ID.Index), q.d.lock, id)
	if q.m.PaymentID != "" {
		set := fmt.Sprintf("UPDATE %s SET %s = ?", mapping.Quote(t.name), mapping.Quote(q.m.PaymentID))
		where := fmt.Sprintf(" WHERE %s = ?", id)
		t.payment, t.repay = q.inUTC(set+changeLock("", "", q.m.Lock)+where), q.inUTC(set+changeLock("", q.m.Version, q.m.Lock)+where)
	}
	if t.items != "" {
		list, of := q.lines(t.items)
		t.lines, t.countedLines = list+of, q.counted(list+of, of)
		t.lockLines = q.counted(list+of+q.d.share("NOWAIT"), of) //mutant:lines-read-unlocked
	}
	return t
}

// decodeDue decodes a due time. NULL and each time that means never are orderclose.NeverDue: a time in a western
// zone may be in the year 10000, which JSON cannot have. Other values that are no point in time, such as 0, are
// the zero time.
func (q *statements) decodeDue(v any) (due time.Time, err error) {
	if v == nil {
		return orderclose.NeverDue, nil //mutant:null-is-due
	}
	if due, _, err = q.due.Decode(v); orderclose.IsNever(due) {
		due = orderclose.NeverDue
	}
	return due, err
}

// attributes writes the expression of Mapping.Attributes, for decodeAttributes.
func (q *statements) attributes() string {
	if len(q.m.Attributes) == 0 {
		return "NULL"
	}
	columns := make([]string, len(q.m.Attributes))
	for i, a := range q.m.Attributes {
		columns[i] = mapping.Quote(a.Column)
	}
	return cmp.Or(q.d.jsonArray, "JSON_ARRAY") + "(" + strings.Join(columns, ", ") + ")"
}

// decodeAttributes returns the attributes by name, without those that are NULL. Numbers have the type json.Number.
func (q *statements) decodeAttributes(v any) (map[string]any, error) {
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
	for i, a := range q.m.Attributes {
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

// state is what a status means for closing.
type state int8

const (
	stateOpen     state = 0
	statePaid     state = 1
	stateClosed   state = 2
	stateExcluded state = 3 // unpaid, but Mapping.Where excludes the order
)

// readState writes the expression of an order's state. The database compares the status, by the rules of
// the column, as it does in the compare-and-set.
func (q *statements) readState() string {
	listed, rest := stateClosed, statePaid
	if q.listsPaid() {
		listed, rest = statePaid, stateClosed
	}
	open := strconv.Itoa(int(stateOpen))
	if q.where.sql != "" {
		open = fmt.Sprintf("CASE WHEN %s THEN %d ELSE %d END", q.where.sql, stateOpen, stateExcluded)
	}
	status := mapping.Quote(q.m.Status.Column)
	return fmt.Sprintf("CASE WHEN %s = ? THEN %s WHEN %s IN ? THEN %d ELSE %d END", status, open, status, listed, rest)
}

// trimmed writes an id without the spaces that a session of the shop pads a CHAR with (PAD_CHAR_TO_FULL_LENGTH). No id ends with one.
func (q *statements) trimmed(id string) string {
	if q.d.Name != MySQL {
		return id
	}
	return "RTRIM(" + id + ")"
}

// inUTC lets an UPDATE write to columns of the type TIMESTAMP, whose values are in the zone of the session: a session of the shop may have
// any. On MySQL the hour that clocks show twice may be the other one.
func (q *statements) inUTC(update string) string {
	const utc = "CONVERT_TZ(?, '+00:00', @@time_zone)"
	var all []string
	if at := q.m.PaidAt; at != nil && at.Type == mapping.Timestamp {
		all = append(all, mapping.Quote(at.Column)+" = ?", mapping.Quote(at.Column)+" = "+utc)
	}
	if q.m.Lock != nil && q.m.Lock.Type == mapping.Timestamp {
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
	id := mapping.Quote(q.m.ID.Column)
	version := "-1"
	if q.m.Version != "" {
		version = "COALESCE(" + mapping.Quote(q.m.Version) + ", 0)"
	}
	further := ""
	for _, c := range q.m.EventColumns {
		further += ", " + mapping.Quote(c)
	}
	return fmt.Sprintf("SELECT %s, %s, %s, %s, %s, ?%s FROM %s%s WHERE %s IN ? ORDER BY %s",
		q.m.ID.Read(q.m.ID.Column), orElse(q.m.Category, "''"), q.readState(), q.dueOf(orders), version, further,
		mapping.Quote(orders), q.d.hint(q.m.ID.Index), id, id)
}

// listsPaid reports whether the mapping lists only paid values. Then all other values count
// as closed.
func (q *statements) listsPaid() bool { return len(q.m.Status.Paid) > 0 && len(q.m.Status.Closed) == 0 }

// payableArgs returns the arguments of table.payable.
func (q *statements) payableArgs(id any) []any {
	var named []any
	for _, v := range slices.Concat([]mapping.Value{q.m.Status.From, q.m.Status.To}, q.m.Status.Paid, q.m.Status.Closed) {
		named = append(named, v.Arg())
	}
	return append(q.stateArgs(), named, q.d.millis(), id)
}

// stateArgs returns the arguments of readState.
func (q *statements) stateArgs() []any {
	listed := append([]mapping.Value{q.m.Status.To}, q.m.Status.Closed...)
	if q.listsPaid() {
		listed = q.m.Status.Paid
	}
	values := make([]any, len(listed))
	for i, v := range listed {
		values[i] = v.Arg()
	}
	args := append([]any{q.m.Status.From.Arg()}, q.where.args...)
	return append(args, values)
}

// condition is a part of a WHERE, with its arguments; empty: there is none.
type condition struct {
	sql  string
	args []any
}

// whereOf writes the condition that columns have values, as Mapping.Where. A number with a fraction is written as such:
// databases compare a text with a DECIMAL as floating point.
func whereOf(columns []mapping.ColumnValue) (c condition) {
	var all []string
	for _, w := range columns {
		switch arg := w.Value.Arg(); {
		case w.Value == (mapping.Value{}):
			all = append(all, mapping.Quote(w.Column)+" IS NULL")
		case w.Value.Number && arg == any(w.Value.Text):
			all = append(all, mapping.Quote(w.Column)+" = "+w.Value.Text)
		default:
			all, c.args = append(all, mapping.Quote(w.Column)+" = ?"), append(c.args, arg)
		}
	}
	c.sql = strings.Join(all, " AND ")
	return c
}

// triggers writes the expression of the triggers of what a close writes.
func (q *statements) triggers(orders string) string {
	written := []string{orders, "receipts", "outbox_events"}
	for _, s := range q.m.Stock {
		written = append(written, s.Table)
	}
	for _, statement := range q.m.OnClose {
		if name, _, _ := mapping.OnCloseTable(statement); name != "" {
			written = append(written, name)
		}
	}
	return q.d.Triggers(written)
}

// countStatus writes table.has with a second expression.
func (q *statements) countStatus(orders, triggers string) string {
	return fmt.Sprintf("SELECT COUNT(*), %s FROM %s%s WHERE %s IN ? AND %s%s = ?", triggers, mapping.Quote(orders), q.d.hint(q.m.ID.Index),
		mapping.Quote(q.m.ID.Column), q.d.Unindexed, mapping.Quote(q.m.Status.Column))
}

// pay writes the compare-and-set of a payment.
func (q *statements) pay(orders string) string {
	if _, ok := q.m.Status.Pay(); !ok {
		return ""
	}
	return q.inUTC(fmt.Sprintf("UPDATE %s%s SET %s WHERE %s IN ? AND %s%s = ?", mapping.Quote(orders), q.d.hint(q.m.ID.Index),
		q.assignments(q.m.SetPaid, q.m.PaidAt.Name()),
		mapping.Quote(q.m.ID.Column), q.d.Unindexed, mapping.Quote(q.m.Status.Column)))
}

// orElse returns the quoted column, or otherwise if there is no column.
func orElse(column, otherwise string) string {
	if column == "" {
		return otherwise
	}
	return mapping.Quote(column)
}

// mark writes the compare-and-set of a close.
func (q *statements) mark(orders string) string {
	var times []string
	for _, t := range q.m.ClosedAt {
		times = append(times, t.Column)
	}
	return fmt.Sprintf("UPDATE %s%s SET %s WHERE %s IN ? AND %s%s = ? AND %s <= ?", mapping.Quote(orders), q.d.hint(q.m.ID.Index), //mutant:no-cas,before-due
		q.assignments(q.m.Set, times...), mapping.Quote(q.m.ID.Column), q.d.Unindexed, mapping.Quote(q.m.Status.Column), q.dueOf(orders))
}

// assignments writes the assignments of an UPDATE that changes the status: the status, constants, the
// columns with the time of the change, without empty names, and the locks.
func (q *statements) assignments(constants []mapping.ColumnValue, at ...string) string {
	set := mapping.Quote(q.m.Status.Column) + " = ?"
	for _, a := range constants {
		set += ", " + mapping.Quote(a.Column) + " = ?"
	}
	for _, column := range at {
		if column != "" {
			set += ", " + mapping.Quote(column) + " = ?"
		}
	}
	return set + changeLock("", q.m.Version, q.m.Lock)
}

// payArgs returns the arguments of table.pay.
func (q *statements) payArgs(paid mapping.Value, ids []any, now time.Time) []any {
	args := assigned(paid, q.m.SetPaid)
	if q.m.PaidAt != nil {
		args = append(args, q.paidAt.Arg(now))
	}
	return append(append(args, q.lockArgs(now)...), ids, q.m.Status.From.Arg())
}

// markArgs returns the arguments of table.mark.
func (q *statements) markArgs(ids []any, now time.Time) []any {
	args := assigned(q.m.Status.To, q.m.Set)
	for _, at := range q.closedAt {
		args = append(args, at.Arg(now))
	}
	return append(append(args, q.lockArgs(now)...), ids, q.m.Status.From.Arg(), q.due.Arg(now))
}

// assigned returns the first arguments of assignments.
func assigned(status mapping.Value, constants []mapping.ColumnValue) []any {
	args := []any{status.Arg()}
	for _, a := range constants {
		args = append(args, a.Value.Arg())
	}
	return args
}

// args returns ids as arguments of the type of the id column.
func (q *statements) args(ids []string) []any {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i], _ = q.m.ID.Arg(id)
	}
	return args
}
