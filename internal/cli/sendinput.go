package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// line is an order in the input of send.
type line struct {
	ID         string
	Category   string
	CreatedAt  time.Time
	DueAt      time.Time
	Attributes map[string]any
}

// lineFields are the keys of a line.
var lineFields = []string{"order_id", "category", "created_at", "due_at", "attributes"}

// orders reads the input of send: JSON objects, one for each order. An error names the line in
// which the order begins.
type orders struct {
	lines *lineCounter
	dec   *json.Decoder
}

func newOrders(r io.Reader) *orders {
	lines := &lineCounter{r: r}
	return &orders{lines: lines, dec: json.NewDecoder(lines)}
}

// next returns the next order, or io.EOF.
func (o *orders) next() (line, error) {
	raw, at, err := o.raw()
	var l line
	if err == nil {
		l, err = parseLine(raw)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("line %d: %w", at, err)
	}
	return l, err
}

// raw returns the next JSON and the line in which it begins, or io.EOF.
func (o *orders) raw() (raw json.RawMessage, at int, err error) {
	o.dec.More() // skips white space
	start := o.dec.InputOffset()
	if err = o.dec.Decode(&raw); errors.Is(err, io.EOF) {
		return nil, 0, io.EOF
	}
	at = o.lines.at(start)
	if broken := (*json.SyntaxError)(nil); errors.As(err, &broken) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("not a JSON object of an order: %w", err)
	} else if err != nil {
		err = fmt.Errorf("read stdin: %w", err)
	}
	return raw, at, err
}

// parseLine decodes each field separately, so that an error names the field.
func parseLine(raw json.RawMessage) (line, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return line{}, fmt.Errorf("%s is not a JSON object of an order: want keys with values, of %s", compactJSON(raw), strings.Join(lineFields, ", "))
	}
	var l line
	moment := "a time such as " + stamp(time.Now())
	fields := map[string]struct {
		to   any
		want string
	}{
		"order_id": {&l.ID, "text"}, "category": {&l.Category, "text"}, "created_at": {&l.CreatedAt, moment}, "due_at": {&l.DueAt, moment},
		"attributes": {&l.Attributes, "an object"},
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		field, known := fields[key]
		if !known {
			return line{}, fmt.Errorf("unknown field %q; the fields are %s", key, strings.Join(lineFields, ", "))
		}
		if json.Unmarshal(given[key], field.to) != nil {
			return line{}, fmt.Errorf("%s is %s: want %s", key, compactJSON(given[key]), field.want)
		}
	}
	return l, nil
}

// compactJSON returns the JSON on one line, cut to 60 characters.
func compactJSON(raw json.RawMessage) string {
	var compact bytes.Buffer
	_ = json.Compact(&compact, raw) // raw is valid: it was decoded before
	const most = 60
	if s := []rune(compact.String()); len(s) > most {
		return string(s[:most]) + "…"
	}
	return compact.String()
}

// lineCounter knows the line number of each byte that it has read.
type lineCounter struct {
	r    io.Reader
	read int64
	line int     // the number of newlines that were removed from ends
	ends []int64 // the offsets of newlines
}

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for i, b := range p[:n] {
		if b == '\n' {
			c.ends = append(c.ends, c.read+int64(i))
		}
	}
	c.read += int64(n)
	return n, err
}

// at returns the line number of an offset, from 1. Offsets must not decrease.
func (c *lineCounter) at(offset int64) int {
	before, _ := slices.BinarySearch(c.ends, offset)
	c.line += before
	c.ends = slices.Delete(c.ends, 0, before)
	return c.line + 1
}
