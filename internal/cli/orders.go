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

// line is an order as send reads it from stdin.
type line struct {
	ID         string
	Category   string
	CreatedAt  time.Time
	DueAt      time.Time
	Attributes map[string]any
}

// lineFields are the keys of a line.
var lineFields = []string{"order_id", "category", "created_at", "due_at", "attributes"}

// orders reads lines. What goes wrong is told with the line that its order begins in.
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
	o.dec.More() // skips to where it begins
	start := o.dec.InputOffset()
	var raw json.RawMessage
	err := o.dec.Decode(&raw)
	if errors.Is(err, io.EOF) {
		return line{}, io.EOF
	}
	at := o.lines.at(start)
	if broken := (*json.SyntaxError)(nil); errors.As(err, &broken) || errors.Is(err, io.ErrUnexpectedEOF) {
		return line{}, fmt.Errorf("line %d: it is no JSON object of an order: %w", at, err)
	}
	if err != nil {
		return line{}, fmt.Errorf("line %d: stdin cannot be read: %w", at, err)
	}
	l, err := parseLine(raw)
	if err != nil {
		return line{}, fmt.Errorf("line %d: %w", at, err)
	}
	return l, nil
}

// parseLine takes a line apart field by field, so that it can say which one is wrong.
func parseLine(raw json.RawMessage) (line, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return line{}, fmt.Errorf("%s is no JSON object of an order: want keys with values, of %s", short(raw), strings.Join(lineFields, ", "))
	}
	var l line
	for _, key := range slices.Sorted(maps.Keys(given)) {
		var to any
		var want string
		switch key {
		case "order_id":
			to, want = &l.ID, "text"
		case "category":
			to, want = &l.Category, "text"
		case "created_at":
			to, want = &l.CreatedAt, "a time such as "+stamp(time.Now())
		case "due_at":
			to, want = &l.DueAt, "a time such as "+stamp(time.Now())
		case "attributes":
			to, want = &l.Attributes, "an object"
		default:
			return line{}, fmt.Errorf("unknown field %q; there are %s", key, strings.Join(lineFields, ", "))
		}
		if json.Unmarshal(given[key], to) != nil {
			return line{}, fmt.Errorf("%s is %s: want %s", key, short(given[key]), want)
		}
	}
	return l, nil
}

// short is what was given, on one line.
func short(raw json.RawMessage) string {
	var compact bytes.Buffer
	_ = json.Compact(&compact, raw) // it was decoded before
	const most = 60
	if s := []rune(compact.String()); len(s) > most {
		return string(s[:most]) + "…"
	}
	return compact.String()
}

// lineCounter knows in which line each byte was that it has read.
type lineCounter struct {
	r    io.Reader
	read int64
	line int     // newlines before those of ends
	ends []int64 // offsets of newlines that were read
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

// at returns the line of an offset, from 1. Offsets do not go back.
func (c *lineCounter) at(offset int64) int {
	before, _ := slices.BinarySearch(c.ends, offset)
	c.line += before
	c.ends = slices.Delete(c.ends, 0, before)
	return c.line + 1
}
