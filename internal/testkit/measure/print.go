package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Number is a measured number. Its JSON has three decimals.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) { return json.Marshal(Round(float64(n), 3)) }

// Millis is a measured time. Its JSON is in milliseconds, with a precision of a microsecond.
type Millis time.Duration

// MarshalJSON implements json.Marshaler.
func (m Millis) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(m).Microseconds()) / 1000)
}

// Print writes a result, a struct or a map with keys of text, as one JSON object to out, and the same
// numbers to tables: an object or a list of objects as a table, everything else in lines.
func Print(out, tables io.Writer, result any) error {
	encoded, err := json.Marshal(result)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.UseNumber()
	w := tabwriter.NewWriter(tables, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, m := range parse(d).([]member) {
		rows, ok := m.value.([]any)
		if _, object := m.value.([]member); object {
			rows = []any{m.value}
		} else if !ok {
			fmt.Fprintf(w, "%s\t%v\t\n", m.name, m.value)
		}
		header := ""
		for _, row := range rows {
			names, values := cells(row, "", nil, nil)
			if line := strings.Join(names, "\t"); line != header {
				header = line
				fmt.Fprintf(w, "\n%s\t%s\t\n", m.name, header)
			}
			fmt.Fprintf(w, "\t%s\t\n", strings.Join(values, "\t"))
		}
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = out.Write(append(encoded, '\n'))
	return err
}

// member is a member of a JSON object.
type member struct {
	name  string
	value any
}

// parse reads a JSON value: a []member in the order of the object, a []any, or a scalar.
func parse(d *json.Decoder) any {
	token, _ := d.Token() // the text is our own encoding
	switch token {
	case json.Delim('{'):
		var all []member
		for d.More() {
			name, _ := d.Token()
			all = append(all, member{name.(string), parse(d)})
		}
		d.Token()
		return all
	case json.Delim('['):
		var all []any
		for d.More() {
			all = append(all, parse(d))
		}
		d.Token()
		return all
	}
	return token
}

// cells appends the names and values of a row. Those of an object inside it have its name before theirs.
func cells(value any, name string, names, values []string) ([]string, []string) {
	object, ok := value.([]member)
	if !ok {
		return append(names, name), append(values, fmt.Sprint(value))
	}
	for _, m := range object {
		names, values = cells(m.value, strings.TrimPrefix(name+" "+m.name, " "), names, values)
	}
	return names, values
}
