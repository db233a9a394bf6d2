package intake

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// connector is a connector of Debezium with settings, whose records are in testdata/debezium. TestReal_Debezium runs it,
// and with UPDATE_GOLDEN=1 writes the records: a value on each line, nothing for a tombstone.
type connector struct {
	name, server string
	settings     []string
	former       bool     // an update has the former row
	deletes      []string // what becomes of the records of a deleted row
	step         time.Duration
}

var (
	flatten = []string{"transforms=flat", "transforms.flat.type=io.debezium.transforms.ExtractNewRecordState"}
	plain   = "value.converter.schemas.enable=false"
	twice   = []string{"no_row", "no_row"} // the delete and its tombstone
)

var connectors = []connector{
	{"mariadb", "mariadb", []string{plain}, true, twice, 0},
	{"mariadb-connect-flat", "mariadb", append(flatten, plain, "time.precision.mode=connect", "binary.handling.mode=hex"), false, twice[:1], time.Millisecond},
	{"mysql-schema", "mysql", []string{"decimal.handling.mode=string"}, true, twice, 0},
	{"mysql-isostring-flat", "mysql", append(flatten, plain, "transforms.flat.delete.tombstone.handling.mode=rewrite", "time.precision.mode=isostring",
		"binary.handling.mode=base64-url-safe"), false, twice[:1], 0},
	{"mysql-nanoseconds", "mysql", []string{plain, "time.precision.mode=nanoseconds"}, true, twice, 0},
	{"postgres", "postgresql", []string{plain}, false, twice, 0},
	{"postgres-connect", "postgresql", []string{plain, "time.precision.mode=connect"}, false, twice, time.Millisecond},
	{"postgres-microseconds-flat", "postgresql", append(flatten, plain, "time.precision.mode=microseconds"), false, twice[:1], 0},
	{"postgres-isostring", "postgresql", []string{plain, "time.precision.mode=isostring"}, false, twice, 0},
}

// dueColumns are the columns of due times in the table: clocks of New York, instants, and unix time.
var dueColumns = []mapping.TimeColumn{
	{Column: "wall0", Type: mapping.DateTime, Zone: "America/New_York", Precision: mapping.Seconds},
	{Column: "wall3", Type: mapping.DateTime, Zone: "America/New_York", Precision: mapping.Millis},
	{Column: "wall6", Type: mapping.DateTime, Zone: "America/New_York", Precision: mapping.Micros},
	{Column: "at0", Type: mapping.Timestamp, Precision: mapping.Seconds},
	{Column: "at3", Type: mapping.Timestamp, Precision: mapping.Millis},
	{Column: "at6", Type: mapping.Timestamp, Precision: mapping.Micros},
	{Column: "secs", Type: mapping.UnixSeconds},
	{Column: "ms", Type: mapping.UnixMillis},
}

// shopRow is a row of the table. wall is what a clock in New York shows at the due time.
type shopRow struct {
	id                int
	state, kind, wall string
	hidden            bool
	due               time.Time
	special           string // a value of the columns in place of a due time
}

const (
	null  = "NULL"
	never = "9999-12-31 00:00:00"
	zero  = "0000-00-00 00:00:00" // PostgreSQL has none, and infinity
)

func instant(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05.999999", text)
	if err != nil {
		panic(err)
	}
	return t
}

func uuidOf(id int) string { return fmt.Sprintf("0190fbff-7d4e-7abc-bfff-%010d00", id) }

var (
	july = shopRow{id: 1, state: "unpaid", kind: "书", wall: "2027-07-01 08:30:00.123456", due: instant("2027-07-01 12:30:00.123456")}
	// Clocks show the first one twice, and never the second.
	snapshotRows = []shopRow{
		july,
		{id: 2, state: "unpaid", wall: "2027-11-07 01:30:00.000001", due: instant("2027-11-07 06:30:00.000001")},
		{id: 3, state: "unpaid", wall: "2027-03-14 02:30:00.400", due: instant("2027-03-14 07:30:00.400")},
		{id: 4, state: "unpaid", special: null},
		{id: 5, state: "unpaid", special: never},
		{id: 6, state: "unpaid", special: zero},
		{id: 7, state: "paid", wall: july.wall, due: july.due},
		{id: 8, state: "unpaid", hidden: true, wall: july.wall, due: july.due},
	}
	inserted = shopRow{id: 9, state: "unpaid", kind: "virtual", wall: "2027-01-31 23:59:59.499", due: instant("2027-02-01 04:59:59.499")}
	moved    = shopRow{id: 2, state: "unpaid", wall: "2027-11-07 02:30:00", due: instant("2027-11-07 07:30:00")}
)

// expected returns what becomes of the records: of the snapshot, of an insert, and of updates of another column, of a due
// time, to paid and to unpaid, and of a delete.
func (c connector) expected(column mapping.TimeColumn, binaryID bool) (all []string) {
	due := func(r shopRow) {
		id := fmt.Sprint(r.id)
		if binaryID {
			id = uuidOf(r.id)
		}
		codec, err := column.Codec()
		if err != nil {
			panic(err) // a column of this test
		}
		at := r.due.Truncate(max(codec.Step(), time.Microsecond))
		if column.Precision == mapping.Seconds {
			at = r.due.Truncate(time.Second)
		}
		if column.Type == mapping.DateTime && c.step > 0 {
			at = at.Truncate(c.step)
		}
		all = append(all, fmt.Sprintf("%s %s %s %s", id, r.kind, now.Format(time.RFC3339), at.Format(time.RFC3339Nano)))
	}
	for _, r := range snapshotRows {
		switch {
		case r.state != "unpaid":
			all = append(all, "not_unpaid")
		case r.hidden:
			all = append(all, "excluded")
		case r.special != "":
			all = append(all, "no_due")
		default:
			due(r)
		}
	}
	if due(inserted); c.former {
		all = append(all, "unchanged")
	} else {
		due(july)
	}
	due(moved)
	all = append(all, "not_unpaid")
	due(shopRow{id: 7, due: july.due})
	return append(all, c.deletes...)
}

// check compares what becomes of the records of a connector with the rows of the table, for each column of due times.
func (c connector) check(t *testing.T, values []string) {
	t.Helper()
	for _, column := range dueColumns {
		for _, binaryID := range []bool{false, true} {
			m := &mapping.Mapping{
				Orders: "shop.orders", ID: mapping.Key{Column: "id", Type: mapping.Integer}, Due: column, Category: "kind",
				Status: mapping.Status{Column: "state", From: mapping.OneOf{mapping.TextValue("unpaid")}, To: mapping.TextValue("closed")},
				Where:  []mapping.Condition{mapping.Is("hidden", mapping.IntValue(0))},
			}
			if binaryID {
				m.ID = mapping.Key{Column: "number", Type: mapping.UUIDBinary}
			}
			if c.server == "postgresql" && column.Type == mapping.Timestamp {
				m.Due.Type = mapping.TimestampTZ
			}
			if c.server == "postgresql" && binaryID {
				m.ID.Type = mapping.UUID
			}
			var got []string
			for _, value := range values {
				got = append(got, explain(t, Debezium, m, value))
			}
			expect.Same(t, got, c.expected(column, binaryID), "column %s, binary id %v", column.Column, binaryID)
		}
	}
}

// file is the file with the records of the connector. Its folder has the version of Debezium.
func (c connector) file() string {
	return filepath.Join("testdata", "debezium-3.2.0.Final", c.name+".jsonl")
}

func TestDebezium_RecordedRecordsAreScheduledAsTheTableSays(t *testing.T) {
	for _, c := range connectors {
		t.Run(c.name, func(t *testing.T) {
			text := must.Get(os.ReadFile(c.file()))(t)
			c.check(t, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
		})
	}
}
