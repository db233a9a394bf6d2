package tables

import (
	"math"
	"strconv"
)

// Value is a value of a status column: a number or text.
type Value struct {
	Text   string // a number in decimal
	Number bool
}

// Int is a status that is a number.
func Int(n int64) Value { return Value{strconv.FormatInt(n, 10), true} }

// Word is a status that is text.
func Word(text string) Value { return Value{Text: text} }

// Arg is the value as an argument of a statement.
func (v Value) Arg() any {
	if n, err := strconv.ParseInt(v.Text, 10, 64); v.Number && err == nil {
		return n
	}
	return v.Text
}

// String is the value as topics.yaml has it.
func (v Value) String() string {
	if v.Number {
		return v.Text
	}
	return strconv.Quote(v.Text)
}

// Arg is the value of a key as an argument of a statement; false if no row can
// have it. A number is written in one way only: 017 is not the order 17.
func (k Key) Arg(id string) (any, bool) {
	if k.Type != Integer {
		return id, id != ""
	}
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return n, strconv.FormatInt(n, 10) == id
	}
	n, err := strconv.ParseUint(id, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == id
}

// After is the argument that stands for a page's last key; for the empty one it
// is before all keys.
func (k Key) After(id string) any {
	if k.Type == Integer && id == "" {
		return int64(math.MinInt64)
	}
	arg, _ := k.Arg(id)
	return arg
}

// Compare orders ids as an index on the key does, as far as that can be told.
func (k Key) Compare(a, b string) int {
	if k.Type == Integer && (len(a) != len(b) || len(a) > 0 && a[0] == '-') {
		return compareNumbers(a, b)
	}
	return compareText(a, b)
}

func compareNumbers(a, b string) int {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	switch {
	case errX != nil || errY != nil: // beyond 63 bits; the longer one is larger
		return len(a) - len(b)
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
