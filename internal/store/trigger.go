package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// triggerSyntax is the SQL of a trigger in which databases differ. In a format, %[1]s is a column of the new
// row. A moment has no zone, and is in UTC.
type triggerSyntax struct {
	moments map[mapping.TimeType]string // the moment of a column
	zoned   string                      // the moment of a DateTime in the zone %[2]s, whose largest offset is %[3]d seconds
	// limits are the values from which on a due time is too far ahead: at most wire.MaxDelayLimit, or the
	// dispatcher refuses the row.
	limits map[mapping.TimeType]string
	now    string // the present moment
	delay  string // an interval of oc.delay_us
	iso    string // the text of the moment %s
	text   string // the type of text
	object string // the function that returns an object in JSON
	create string // its arguments are those of triggerParts.format
	drop   string
	// changed says whether an UPDATE changes the column %[1]s.
	changed string
}

var mysqlTrigger = triggerSyntax{
	moments: map[mapping.TimeType]string{
		mapping.Timestamp:   "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL UNIX_TIMESTAMP(%[1]s) SECOND",
		mapping.UnixSeconds: "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL %[1]s SECOND",
		mapping.UnixMillis:  "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL %[1]s * 1000 MICROSECOND",
	},
	// A server without time zone tables returns NULL. The record then comes too early while the offset is
	// smaller, and the closer sends it again.
	zoned: "COALESCE(CONVERT_TZ(%[1]s, %[2]s, '+00:00'), %[1]s - INTERVAL '%[3]d' SECOND)",
	limits: map[mapping.TimeType]string{
		mapping.DateTime:    "UTC_TIMESTAMP() + INTERVAL '3650' DAY",
		mapping.Timestamp:   "UTC_TIMESTAMP() + INTERVAL '3650' DAY",
		mapping.UnixSeconds: "UNIX_TIMESTAMP() + 315360000",
		mapping.UnixMillis:  "(UNIX_TIMESTAMP() + 315360000) * 1000",
	},
	now:    "UTC_TIMESTAMP(3)",
	delay:  "INTERVAL oc.delay_us MICROSECOND",
	iso:    "DATE_FORMAT(%s, '%%Y-%%m-%%dT%%H:%%i:%%s.%%fZ')",
	text:   "CHAR CHARACTER SET utf8mb4",
	object: "JSON_OBJECT",
	create: "CREATE TRIGGER %[1]s AFTER %[6]s ON %[2]s FOR EACH ROW\nIF %[3]s THEN\n  %[4]s;\nEND IF",
	drop:   "DROP TRIGGER %[1]s",

	changed: "NOT OLD.%[1]s <=> NEW.%[1]s",
}

// postgresNow is the present moment in UTC.
const postgresNow = "(statement_timestamp() AT TIME ZONE 'UTC')"

var postgresTrigger = triggerSyntax{
	moments: map[mapping.TimeType]string{
		mapping.TimestampTZ: "(%[1]s AT TIME ZONE 'UTC')",
		mapping.UnixSeconds: "(to_timestamp(%[1]s) AT TIME ZONE 'UTC')",
		mapping.UnixMillis:  "(to_timestamp(%[1]s / 1000.0) AT TIME ZONE 'UTC')",
	},
	zoned: "(%[1]s AT TIME ZONE %[2]s AT TIME ZONE 'UTC')",
	limits: map[mapping.TimeType]string{
		mapping.DateTime:    postgresNow + " + INTERVAL '3650' DAY",
		mapping.TimestampTZ: "statement_timestamp() + INTERVAL '3650' DAY",
		mapping.UnixSeconds: "extract(epoch FROM statement_timestamp()) + 315360000",
		mapping.UnixMillis:  "(extract(epoch FROM statement_timestamp()) + 315360000) * 1000",
	},
	now:    postgresNow,
	delay:  "oc.delay_us * INTERVAL '1 microsecond'",
	iso:    `to_char(%s, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`,
	text:   "text",
	object: "json_build_object",
	// The function runs as its owner, so that the shop's user needs no right to the outbox, and with a fixed search path,
	// so that no table of that user takes the outbox's place. It casts columns of the new row, and a cast of a foreign
	// table may be a function of somebody else. So nobody but the table's owner may use the function in a trigger, and it
	// serves no other table than the one of orders and its partitions, also in triggers that exist already.
	create: `BEGIN;
CREATE OR REPLACE FUNCTION %[5]s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_RELID <> %[7]s::regclass AND NOT EXISTS (SELECT 1 FROM pg_partition_ancestors(TG_RELID) AS oc_a WHERE oc_a.relid = %[7]s::regclass) THEN
    RAISE EXCEPTION 'this function schedules the orders of %%, and %% is another table', %[7]s, TG_RELID::regclass;
  END IF;
  %[4]s;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION %[5]s() FROM PUBLIC;
DO $$ BEGIN
  EXECUTE format('GRANT EXECUTE ON FUNCTION %%s TO %%I', %[8]s::regprocedure,
    (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = %[7]s::regclass));
END $$;
CREATE TRIGGER %[1]s AFTER %[6]s ON %[2]s FOR EACH ROW
WHEN (%[3]s)
EXECUTE FUNCTION %[5]s();
COMMIT`,
	drop:    "DROP TRIGGER %[1]s ON %[2]s;\nDROP FUNCTION %[5]s()",
	changed: "OLD.%[1]s IS DISTINCT FROM NEW.%[1]s",
}

// TriggerOptions choose where a trigger is and where it writes.
type TriggerOptions struct {
	Table    string // of orders; required if the mapping has a table for each month; default: the mapping's
	Database string // of outbox_schedules, in PostgreSQL its schema; default: that of Table, and in PostgreSQL public
	Pipeline string // of the delays in order_delays, with Mapping.ByRule: the name of the close topic
	Drop     bool   // the statement that removes the trigger
	// OnUpdate is for a shop that turns a cart into an order by an UPDATE: the trigger is for rows whose status or
	// due time an UPDATE changes, instead of new rows.
	OnUpdate bool
}

// OwnTrigger is how the names of the triggers of Trigger begin.
const OwnTrigger = "orderclose_"

// Trigger returns a statement that creates an AFTER INSERT trigger, or with OnUpdate an AFTER UPDATE trigger. The trigger
// writes a row of outbox_schedules for each such order that is unpaid, has a due time and is not excluded by the mapping m. It
// writes no row that the dispatcher refuses, and so that would fail a checkout or become a dead letter: for such an
// id, and for a due time that is ten years ahead. The statement is for one call of a client, without a
// delimiter at its end.
func Trigger(name DialectName, m *mapping.Mapping, o TriggerOptions) (string, error) {
	d, known := serverDialects[name]
	if !known {
		return "", fmt.Errorf("there is no trigger for a database called %q: write %s or %s", name, MySQL, Postgres)
	}
	if o.Table = cmp.Or(o.Table, m.Orders); mapping.IsPattern(o.Table) {
		return "", errors.New("the orders of each month have a table of their own: name one, such as --table orders_202612, and create its trigger with the table")
	}
	p, err := newTriggerParts(d, m, o)
	if err != nil {
		return "", err
	}
	if o.Drop {
		return p.format(d.trigger.drop), nil
	}
	return p.format(d.trigger.create), nil
}

// OpenFunctions returns the functions of triggers with which everybody schedules orders by the rights of the functions'
// owner: such as those that Trigger printed before it revoked them. Only PostgreSQL has such functions.
func (s *Store) OpenFunctions(ctx context.Context) (names []string, err error) {
	if s.dialect.Name != Postgres {
		return nil, nil
	}
	names, err = readAll(s.gorm.WithContext(ctx), `SELECT oid::regprocedure::text FROM pg_proc WHERE prosecdef AND prorettype = 'trigger'::regtype
		AND strpos(prosrc, 'outbox_schedules') > 0
		AND EXISTS (SELECT 1 FROM aclexplode(COALESCE(proacl, acldefault('f', proowner))) WHERE grantee = 0) ORDER BY 1`, nil,
		func(name *string) []any { return []any{name} })
	return names, s.failed(ctx, err, "read the rights of functions")
}

// triggerParts are the parts of a trigger. All are SQL with backquotes.
type triggerParts struct {
	d                                        Dialect
	name, table, condition, insert, database string
	event                                    string // INSERT or UPDATE
}

func newTriggerParts(d Dialect, m *mapping.Mapping, o TriggerOptions) (p triggerParts, err error) {
	home, table := mapping.Split(o.Table)
	does, event := "schedule_", "INSERT"
	if o.OnUpdate {
		does, event = "update_", "UPDATE"
	}
	name := []rune(OwnTrigger + does + table)
	name = name[:min(len(name), 60)] // PostgreSQL takes 63 bytes
	p = triggerParts{d: d, event: event, table: mapping.Quote(o.Table), name: mapping.Quote(string(name))}
	if d.Name == MySQL && home != "" {
		p.name = mapping.Quote(home) + "." + p.name
	}
	if p.database = cmp.Or(o.Database, home); d.Name == Postgres {
		p.database = cmp.Or(p.database, "public")
		p.table = mapping.Quote(cmp.Or(home, p.database) + "." + table) // the search path of its function has no schema of the shop
	}
	due, err := d.newRowTime(m.Due)
	if err != nil {
		return p, err
	}
	created := d.trigger.now
	if m.Created != nil {
		at, err := d.newRowTime(*m.Created)
		if err != nil {
			return p, err
		}
		created = "CASE WHEN " + at.valid + " THEN " + at.moment + " ELSE " + created + " END"
	}
	id, category := d.newText(m.ID.Column), "''"
	if m.ID.Type == mapping.UUIDBinary || m.ID.Type == mapping.UUIDSwapped {
		id = "CAST(" + m.ID.Read("NEW."+m.ID.Column) + " AS " + d.trigger.text + ")"
	}
	if m.Category != "" {
		category = "COALESCE(" + d.newText(m.Category) + ", '')"
	}
	p.condition = d.triggerCondition(m, due, id)
	if o.OnUpdate {
		p.condition += fmt.Sprintf("\n  AND ("+d.trigger.changed+" OR ", mapping.Quote(m.Status.Column)) +
			fmt.Sprintf(d.trigger.changed+")", mapping.Quote(m.Due.Column))
	}
	from := ""
	if m.ByRule {
		due.moment += " + " + d.trigger.delay
		from = "\n  FROM (" + p.delayByRule(m, o.Pipeline) + ") AS oc WHERE oc.delay_us IS NOT NULL"
	}
	p.insert = fmt.Sprintf("INSERT INTO %s (order_id, payload, created_at)\n  SELECT %s, %s('order_id', %[2]s, 'category', %[4]s,\n"+
		"    'created_at', %[5]s,\n    'due_at', %[6]s), %[7]s%[8]s",
		p.ours("outbox_schedules"), id, d.trigger.object, category,
		fmt.Sprintf(d.trigger.iso, created), fmt.Sprintf(d.trigger.iso, due.moment), d.nowSQL, from)
	return p, nil
}

// ours returns the name of a table beside the shop's.
func (p triggerParts) ours(table string) string {
	return mapping.Quote(strings.TrimPrefix(p.database+"."+table, "."))
}

// delayByRule selects the delay of orders that are created now, as delay_us; NULL: they are never due. If an order
// was created before the last change of the delay, its record comes too early or too late: the closer sends it
// again, or the sweep closes the order.
func (p triggerParts) delayByRule(m *mapping.Mapping, pipeline string) string {
	of := "= ''"
	if m.Category != "" {
		of = "IN (" + p.d.asText(newColumn(m.Category)) + ", '')"
	}
	return fmt.Sprintf("SELECT NULLIF(oc_d.delay_us, %d) AS delay_us FROM %s AS oc_d\n    WHERE oc_d.pipeline = %s AND oc_d.category %s\n"+
		"    ORDER BY CASE WHEN oc_d.category = '' THEN 1 ELSE 0 END, oc_d.since_us DESC LIMIT 1",
		neverMicros, p.ours("order_delays"), p.d.literal(pipeline), of)
}

// format writes the statement of a trigger.
func (p triggerParts) format(format string) string {
	function := p.name
	if p.database != "" {
		function = mapping.Quote(p.database) + "." + p.name
	}
	// A literal of PostgreSQL has its own quotes around names: Translate does not look into literals.
	quoted := func(name string) string { return p.d.literal(strings.ReplaceAll(name, "`", `"`)) }
	statement := fmt.Sprintf(format, p.name, p.table, p.condition, p.insert, function, p.event, quoted(p.table), quoted(function+"()"))
	if p.d.translate != nil {
		statement = p.d.translate(statement)
	}
	return statement
}

// triggerCondition writes the condition on a new row that is to be scheduled.
func (d Dialect) triggerCondition(m *mapping.Mapping, due triggerTime, id string) string {
	all := []string{newColumn(m.Status.Column) + " = " + d.literal(m.Status.From.Arg()), due.valid, "OCTET_LENGTH(" + id + ") BETWEEN 1 AND 64"}
	for _, w := range m.Where {
		if w.Value == (mapping.Value{}) {
			all = append(all, newColumn(w.Column)+" IS NULL")
			continue
		}
		all = append(all, newColumn(w.Column)+" = "+d.literal(w.Value.Arg()))
	}
	if codec, err := m.Due.Codec(); err == nil && !m.NotBefore.IsZero() && !m.ByRule { // by rule, the closer decides
		all = append(all, newColumn(m.Due.Column)+" >= "+d.literal(codec.Arg(m.NotBefore)))
	}
	return strings.Join(all, "\n  AND ")
}

// triggerTime is a time of a new row. valid says whether there is one; only then moment has a value.
type triggerTime struct{ moment, valid string }

// newRowTime reads a time from a column of the new row.
func (d Dialect) newRowTime(c mapping.TimeColumn) (t triggerTime, err error) {
	codec, err := c.Codec()
	if err != nil {
		return t, err
	}
	column, limit := newColumn(c.Column), d.trigger.limits[c.Type]
	if limit == "" {
		return t, fmt.Errorf("column %s is mapped as %s, which is no type of this database", c.Column, c.Type)
	}
	t.valid = column + " >= " + d.literal(codec.Oldest()) + " AND " + column + " < " + limit
	if c.Type != mapping.DateTime {
		t.moment = fmt.Sprintf(d.trigger.moments[c.Type], column)
		return t, nil
	}
	low, high, err := c.Offsets(time.Now())
	switch {
	case low != high:
		t.moment = fmt.Sprintf(d.trigger.zoned, column, d.literal(c.Zone), high)
	case high != 0:
		t.moment = fmt.Sprintf("%s - INTERVAL '%d' SECOND", column, high)
	default:
		t.moment = column
	}
	return t, err
}

func newColumn(column string) string { return "NEW." + mapping.Quote(column) }

// newText writes a column of the new row as text.
func (d Dialect) newText(column string) string {
	return "CAST(" + newColumn(column) + " AS " + d.trigger.text + ")"
}

// literal writes a number or text into a statement.
func (d Dialect) literal(value any) string {
	text, is := value.(string)
	if !is {
		return fmt.Sprint(value)
	}
	if d.Name == MySQL {
		text = strings.ReplaceAll(text, `\`, `\\`)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
