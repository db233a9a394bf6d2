package intake

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// text returns a value as text. It returns false for null and for a column that the row does not have.
func (r row) text(column string) (string, bool) {
	raw := r[column]
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return "", false
	}
	if raw[0] != '"' {
		return string(raw), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// is reports whether a column has a value, as a database would compare them: numbers by their size, texts in any case.
// A column that the row does not have may have any value.
func (r row) is(column string, v mapping.Value) bool {
	if _, has := r[column]; !has {
		return true
	}
	text, has := r.text(column)
	if !has || v == (mapping.Value{}) {
		return !has && v == (mapping.Value{})
	}
	if v.Number {
		text = strings.NewReplacer("true", "1", "false", "0").Replace(text)
		is, err := strconv.ParseFloat(text, 64)
		want, _ := strconv.ParseFloat(v.Text, 64)
		return err == nil && is == want
	}
	return strings.EqualFold(strings.TrimRight(text, " "), v.Text) // a CHAR(n) of PostgreSQL ends with blanks
}

// meets reports whether a row meets a condition. A column that the row does not have may have any value.
func (r row) meets(w mapping.Condition) bool {
	_, has := r[w.Column]
	return !has || slices.ContainsFunc(w.Any, func(v mapping.Value) bool { return r.is(w.Column, v) }) != w.Not
}

// id returns the id of a row as text. A BINARY(16) with a UUID comes in Base64, or in hexadecimal digits. Zeros
// at its end may be missing.
func (r row) id(k mapping.Key) string {
	text, _ := r.text(k.Column)
	if k.Type != mapping.UUIDBinary && k.Type != mapping.UUIDSwapped {
		return text
	}
	all, err := hex.DecodeString(text)
	if len(text) != 32 || err != nil {
		all, err = base64.StdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(text))
	}
	if err != nil || len(all) == 0 || len(all) > 16 {
		return text
	}
	d := hex.EncodeToString(append(all, make([]byte, 16-len(all))...))
	if k.Type == mapping.UUIDSwapped {
		d = d[8:16] + d[4:8] + d[:4] + d[16:]
	}
	return strings.Join([]string{d[:8], d[8:12], d[12:16], d[16:20], d[20:]}, "-")
}

// timeColumn reads the times of a column.
type timeColumn struct {
	mapping.TimeColumn
	codec mapping.Codec
	zone  *time.Location // of a text without a zone, unless the mapping has one
}

func newTimeColumn(c *mapping.TimeColumn, zone *time.Location) (timeColumn, error) {
	codec, err := c.Codec()
	if c == nil || err != nil {
		return timeColumn{}, err
	}
	if zone == nil {
		zone = time.UTC
	}
	return timeColumn{*c, codec, zone}, nil
}

// read returns the time of a row. It returns false if the row has none: null, 0 or the zero date.
func (c timeColumn) read(r row) (time.Time, bool, error) {
	text, has := r.text(c.Column)
	if _, in := r[c.Column]; !in {
		return time.Time{}, false, fmt.Errorf("it has no column %s: a VIRTUAL generated column is not in the log of the database, "+
			"and a connector may leave columns out", c.Column)
	}
	if !has || strings.HasPrefix(text, "0000-00-00") {
		return time.Time{}, false, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return c.number(n)
	}
	wall, zoned, ok := parseTime(text)
	switch {
	case text == "infinity" || strings.HasPrefix(text, "+"): // of PostgreSQL; a year of six digits has a sign
		return c.codec.Decode("infinity")
	case strings.HasPrefix(text, "-") || ok && wall.Unix() == 0: // -infinity, and the zero date in a column without NULL
		return time.Time{}, false, nil
	case !ok:
		return time.Time{}, false, fmt.Errorf("column %s has %.40q, which is no time", c.Column, text)
	}
	if c.Type == mapping.Timestamp || c.Type == mapping.TimestampTZ {
		if !zoned {
			wall = time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), c.zone)
		}
		wall = wall.UTC()
	}
	return c.codec.Decode(wall)
}

// infinity is infinity in a timestamp of PostgreSQL, as Debezium writes it, in seconds.
const infinity = 9223372036825

// number reads a number. A column of unix time has its own unit. In any other column Debezium counts milliseconds
// from a precision of milliseconds down, and otherwise microseconds or nanoseconds; with time.precision.mode=connect always
// milliseconds. A wrong unit would be a year long ago or ahead. For a DATETIME the number is what a clock in UTC would show.
func (c timeColumn) number(n int64) (time.Time, bool, error) {
	if c.Type == mapping.UnixSeconds || c.Type == mapping.UnixMillis {
		return c.codec.Decode(n)
	}
	switch {
	case n <= 0: // the zero date in a column without NULL, and -infinity
		return time.Time{}, false, nil
	case n/1000 == infinity || n/1_000_000 == infinity:
		return c.codec.Decode("infinity")
	}
	units := []time.Duration{time.Millisecond, time.Microsecond, time.Nanosecond}
	if c.Precision == mapping.Micros {
		units[0], units[1] = units[1], units[0]
	}
	for _, unit := range units {
		each := int64(time.Second / unit)
		if t := time.Unix(n/each, n%each*int64(unit)).UTC(); n/each < math.MaxInt32*1000 && t.Year() >= 1990 && t.Year() <= 9999 {
			return c.codec.Decode(t)
		}
	}
	return time.Time{}, false, fmt.Errorf("column %s has %d, which is a time in no unit", c.Column, n)
}

// parseTime parses a text with a date and a time. zoned says that it has a time zone.
func parseTime(text string) (t time.Time, zoned, ok bool) {
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil { // with a fraction too
			return t, false, true
		}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05-07"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true, true
		}
	}
	return time.Time{}, false, false
}
