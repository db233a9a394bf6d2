package mapping

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Value is a value of a status column: a number or text.
type Value struct {
	Text   string // for a number, its decimal digits, also behind a point
	Number bool
}

// IntValue returns a status that is a number.
func IntValue(n int64) Value { return Value{strconv.FormatInt(n, 10), true} }

// TextValue returns a status that is text.
func TextValue(text string) Value { return Value{Text: text} }

// Arg returns the value as an argument of a statement.
func (v Value) Arg() any {
	if n, err := strconv.ParseInt(v.Text, 10, 64); v.Number && err == nil {
		return n
	}
	return v.Text
}

// String returns the value as it is written in topics.yaml.
func (v Value) String() string {
	if v.Number {
		return v.Text
	}
	return strconv.Quote(v.Text)
}

// OneOf are values of which a row has one.
type OneOf []Value

// Args returns the values as an argument of a statement, for IN ?.
func (all OneOf) Args() []any {
	args := make([]any, len(all))
	for i, v := range all {
		args[i] = v.Arg()
	}
	return args
}

// Texts returns the texts of the values.
func (all OneOf) Texts() []string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = v.Text
	}
	return texts
}

// String returns the values as they are written in topics.yaml.
func (all OneOf) String() string {
	list := strings.Trim(fmt.Sprint([]Value(all)), "[]")
	return strings.ReplaceAll(list, " ", ", ")
}

// Meaning returns in words what a status means for a close: unpaid, paid or closed, or for a status that
// the mapping does not name, as what it counts. value is the status as the database writes it.
func (s Status) Meaning(value string) string {
	is := func(v Value) bool { return strings.EqualFold(v.Text, value) }
	switch {
	case slices.ContainsFunc(s.From, is):
		return "unpaid"
	case is(s.To) || slices.ContainsFunc(s.Closed, is):
		return "closed"
	case slices.ContainsFunc(s.Paid, is):
		return "paid"
	case len(s.Paid) > 0 && len(s.Closed) == 0:
		return "counts as closed"
	}
	return "counts as paid"
}

// InWords returns a status with its meaning, such as 101 (unpaid). Without a meaning, or with one that the
// status itself says, it returns the status.
func InWords(status, meaning string) string {
	if meaning == "" || meaning == status {
		return status
	}
	return status + " (" + meaning + ")"
}

// Arg returns the value of a key as an argument of a statement. It returns false if no row
// can have the value. A number has one notation: 017 is not the order 17.
func (k Key) Arg(id string) (any, bool) {
	switch k.Type {
	case Integer:
	case UUID:
		return id, uuid.MatchString(id)
	case UUIDBinary, UUIDSwapped:
		return k.bytes(id), uuid.MatchString(id)
	default:
		return id, id != ""
	}
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		return n, strconv.FormatInt(n, 10) == id
	}
	n, err := strconv.ParseUint(id, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == id
}

// NoOrder returns an id of the kind of another one, as an argument, that no order has. A smaller number is none of an INT
// of PostgreSQL.
func (k Key) NoOrder(id string) any {
	none := strconv.Itoa(math.MinInt32)
	if uuid.MatchString(strings.ToLower(id)) {
		none = "ffffffff-ffff-ffff-ffff-ffffffffffff"
	}
	arg, _ := k.Arg(none)
	return arg
}

// decimal matches a decimal number.
var decimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// IsDecimal reports whether a text is a decimal number.
func IsDecimal(text string) bool { return decimal.MatchString(text) }

// uuid matches a uuid as PostgreSQL writes it: another notation of it is no id of the order.
var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// After returns the argument for the last key of a page. For the empty id it returns a value
// below all keys.
func (k Key) After(id string) any {
	switch {
	case k.Type == Integer && id == "":
		return int64(math.MinInt64)
	case k.Type == UUID && id == "":
		return "00000000-0000-0000-0000-000000000000"
	case k.Type.binary() && id == "":
		return []byte{}
	}
	arg, _ := k.Arg(id)
	return arg
}

// Compare orders ids as an index on the key does, except for collations.
func (k Key) Compare(a, b string) int {
	if k.Type == UUIDSwapped {
		return bytes.Compare(k.bytes(a), k.bytes(b))
	}
	if k.Type == Integer && (len(a) != len(b) || len(a) > 0 && a[0] == '-') {
		return compareNumbers(a, b)
	}
	return strings.Compare(a, b)
}

func compareNumbers(a, b string) int {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	if errX != nil || errY != nil { // more than 63 bits: the longer number is larger
		return len(a) - len(b)
	}
	return cmp.Compare(x, y)
}

// binary reports whether the database has keys of the type as bytes, which no record can contain.
func (t KeyType) binary() bool { return t == UUIDBinary || t == UUIDSwapped }

// Read writes the expression of a column with keys of this type as text.
func (k Key) Read(column string) string {
	column = Quote(column)
	parts := map[KeyType]string{UUIDBinary: "1, 8|9, 4|13, 4", UUIDSwapped: "9, 8|5, 4|1, 4"}[k.Type]
	if parts == "" {
		return column
	}
	list := ""
	for _, part := range strings.Split(parts+"|17, 4|21, 12", "|") {
		list += fmt.Sprintf(", SUBSTR(HEX(%s), %s)", column, part)
	}
	return "CASE WHEN " + column + " IS NULL THEN NULL ELSE LOWER(CONCAT_WS('-'" + list + ")) END"
}

// InOrder writes an expression of an id, which is as Read writes it. Sorted by the expression, ids have the order of an index on the key.
func (k Key) InOrder(id string) string {
	if k.Type != UUIDSwapped {
		return id
	}
	return fmt.Sprintf("CONCAT(SUBSTR(%[1]s, 15, 4), SUBSTR(%[1]s, 10, 4), SUBSTR(%[1]s, 1, 8), SUBSTR(%[1]s, 20))", id)
}

// bytes returns a UUID as a column of this type stores it; empty: it is no UUID.
func (k Key) bytes(id string) []byte {
	digits := strings.ReplaceAll(id, "-", "")
	if k.Type == UUIDSwapped && len(digits) == 32 {
		digits = digits[12:16] + digits[8:12] + digits[:8] + digits[16:]
	}
	all, _ := hex.DecodeString(digits)
	return all
}
