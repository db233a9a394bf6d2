package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // time zones by name, on machines without a zone database

	"github.com/orderclose/orderclose"
)

// TimeColumn is a column that holds a point in time, and how to read it.
type TimeColumn struct {
	Column string   `yaml:"column" short:""`
	Type   TimeType `yaml:"type"`
	// Zone is the time zone of a DATETIME, which PostgreSQL calls timestamp: UTC, an offset such as +08:00, or a name such as
	// Asia/Shanghai. It has no default. The other types have no zone.
	Zone string `yaml:"zone"`
	// Precision is the precision of a DATETIME or TIMESTAMP. The type of a column of unix
	// time includes its precision.
	Precision Precision `yaml:"precision"`
}

// Name returns the name of the column; "" for a nil column, which is not mapped.
func (m *TimeColumn) Name() string {
	if m == nil {
		return ""
	}
	return m.Column
}

// TimeType is how a column stores a point in time.
type TimeType string

const (
	DateTime    TimeType = "datetime"
	Timestamp   TimeType = "timestamp"   // of MySQL
	TimestampTZ TimeType = "timestamptz" // of PostgreSQL, whose timestamp is a DateTime
	UnixSeconds TimeType = "unix_s"
	UnixMillis  TimeType = "unix_ms"
	UnixMicros  TimeType = "unix_us" // of computed times; no column has it
)

// TimeTypes returns all types.
func TimeTypes() []TimeType {
	return []TimeType{DateTime, Timestamp, TimestampTZ, UnixSeconds, UnixMillis}
}

// ServerType returns the type of the column as the server names it, which names a DateTime local; "": a column of unix time may have one
// of several.
func (m TimeColumn) ServerType(local string) string {
	return map[TimeType]string{DateTime: local, Timestamp: "TIMESTAMP", TimestampTZ: "TIMESTAMPTZ"}[m.Type]
}

// Precision is the smallest difference of two values of a column.
type Precision string

const (
	Seconds Precision = "s"
	Millis  Precision = "ms"
	Micros  Precision = "us"
)

// Precisions returns all precisions.
func Precisions() []Precision { return []Precision{Seconds, Millis, Micros} }

// digits returns how many digits of a fraction of a second a column has.
func (p Precision) digits() int { return map[Precision]int{Millis: 3, Micros: 6}[p] }

// step returns the smallest difference of two values of the column.
func (m TimeColumn) step() time.Duration {
	switch {
	case m.Type == UnixMicros || m.Precision == Micros:
		return time.Microsecond
	case m.Type == UnixMillis || m.Precision == Millis:
		return time.Millisecond
	}
	return time.Second
}

var offset = regexp.MustCompile(`^([+-])(\d\d):(\d\d)$`)

// ParseZone parses UTC, an offset such as +08:00, or a name such as Asia/Shanghai.
func ParseZone(zone string) (*time.Location, error) {
	if parts := offset.FindStringSubmatch(zone); parts != nil {
		hours, _ := strconv.Atoi(parts[2])
		minutes, _ := strconv.Atoi(parts[3])
		if hours > 14 || minutes > 59 {
			return nil, fmt.Errorf("%q is not an offset of any time zone", zone)
		}
		seconds := hours*3600 + minutes*60
		if parts[1] == "-" {
			seconds = -seconds
		}
		return time.FixedZone(zone, seconds), nil
	}
	if zone == "" || strings.EqualFold(zone, "local") {
		return nil, errors.New("no time zone is given, and the zone of the machine is not used")
	}
	loc, err := time.LoadLocation(strings.Replace(zone, "utc", "UTC", 1))
	if err != nil {
		return nil, fmt.Errorf("%q is not a known time zone", zone)
	}
	return loc, nil
}

// Codec converts times to values of a column and back.
type Codec struct {
	column TimeColumn
	loc    *time.Location
	step   time.Duration
}

// Codec returns the codec of a column in which Check finds no problem. That of a nil column reads NULL.
func (m *TimeColumn) Codec() (c Codec, err error) {
	c = Codec{loc: time.UTC, step: time.Second}
	if m == nil {
		return c, nil
	}
	c.column, c.step = *m, m.step()
	if m.Type == DateTime {
		c.loc, err = ParseZone(m.Zone)
	}
	return c, err
}

// Step returns the smallest difference of two values of the column.
func (c Codec) Step() time.Duration { return c.step }

// Zone returns the time zone in which the column shows times.
func (c Codec) Zone() *time.Location { return c.loc }

// Arg returns t as the column stores it, rounded down to the column's precision. So a column
// that is "<=" the result is never after t: no order is due early. A constant that is finer than
// the column could keep the database from using an index.
func (c Codec) Arg(t time.Time) any {
	t = t.UTC().Truncate(c.step)
	switch c.column.Type {
	case UnixSeconds:
		return t.Unix()
	case UnixMillis:
		return t.UnixMilli()
	case UnixMicros:
		return t.UnixMicro()
	}
	layout := "2006-01-02 15:04:05"
	if n := c.column.Precision.digits(); n > 0 {
		layout += "." + strings.Repeat("0", n)
	}
	if c.column.Type == TimestampTZ {
		layout += "+00" // whatever the zone of the session is
	}
	return t.In(c.loc).Format(layout)
}

// Oldest returns the smallest value of the column that is a point in time. The smaller values, 0
// and the zero date, are not points in time.
func (c Codec) Oldest() any {
	switch c.column.Type {
	case UnixSeconds, UnixMillis, UnixMicros:
		return int64(1)
	case Timestamp:
		return "1970-01-01 00:00:01"
	case TimestampTZ:
		return "1000-01-01 00:00:00+00"
	}
	return "1000-01-01 00:00:00"
}

// Decode reads the value that a driver returned for the column. It returns the zero time and
// false if the value is not a point in time: NULL, 0, or the zero date.
func (c Codec) Decode(src any) (time.Time, bool, error) {
	switch v := src.(type) {
	case nil:
		return time.Time{}, false, nil
	case time.Time:
		switch c.column.Type {
		case DateTime, Timestamp:
		case TimestampTZ:
			v = v.UTC()
		default:
			return c.strange(src)
		}
		if v.Year() < 1000 { // the zero date
			return time.Time{}, false, nil
		}
		return instant(v, c.loc), true, nil
	case int64:
		return c.unix(v)
	case uint64:
		return c.unix(int64(v))
	case []byte:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return c.unix(n)
		}
	case string: // PostgreSQL has two values that are no point in time
		switch v {
		case "infinity":
			return orderclose.NeverDue, true, nil
		case "-infinity":
			return time.Time{}, false, nil
		}
	}
	return c.strange(src)
}

// strange is the result of Decode for a value that a column of this type cannot hold.
func (c Codec) strange(src any) (time.Time, bool, error) {
	return time.Time{}, false, fmt.Errorf("column %s is mapped as %s and holds %T %v", c.column.Column, c.column.Type, src, src)
}

func (c Codec) unix(n int64) (time.Time, bool, error) {
	switch {
	case c.column.Type != UnixSeconds && c.column.Type != UnixMillis && c.column.Type != UnixMicros:
		return time.Time{}, false, fmt.Errorf("column %s is mapped as %s and holds a number, %d", c.column.Column, c.column.Type, n)
	case n <= 0:
		return time.Time{}, false, nil
	case c.column.Type == UnixSeconds:
		return time.Unix(n, 0).UTC(), true, nil
	case c.column.Type == UnixMicros:
		return time.UnixMicro(n).UTC(), true, nil
	}
	return time.UnixMilli(n).UTC(), true, nil
}

// instant returns the time at which clocks in loc show wall, whose own zone is ignored.
// Where clocks are set back and show wall twice, it returns the later time. Where clocks are
// set forward and never show wall, it continues the time before the change. So no order is closed
// early.
func instant(wall time.Time, loc *time.Location) time.Time {
	u := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), time.UTC)
	var shown, any time.Time
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, seconds := u.Add(near).In(loc).Zone()
		t := u.Add(-time.Duration(seconds) * time.Second)
		if t.After(any) {
			any = t
		}
		if _, then := t.In(loc).Zone(); then == seconds && t.After(shown) {
			shown = t
		}
	}
	if shown.IsZero() {
		return any
	}
	return shown
}
