package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/orderclose/orderclose"
)

// A RecordError is read by people who write producers in other languages: it names the field or
// header, what it holds, and the expected form.

// wantTime is the expected form of a time in a value.
const wantTime = "text in RFC 3339, such as 2026-03-01T12:05:00.000Z"

// wantMillis is the expected form of a time in a header.
const wantMillis = "unix milliseconds in decimal digits"

// wanted holds the expected form of each field of a value that must be text or an object.
var wanted = map[string]string{"created_at": wantTime, "due_at": wantTime, "attributes": "an object"}

// kinds names the kinds of JSON values as encoding/json calls them.
var kinds = map[string]string{"number": "a number", "string": "text", "bool": "a boolean", "array": "an array", "object": "an object"}

// jsonProblem says what is wrong with a value that encoding/json rejected with err.
func jsonProblem(value []byte, err error) *RecordError {
	kind := (*json.UnmarshalTypeError)(nil)
	switch {
	case len(value) == 0:
		return &RecordError{ErrBadValue, "the value is empty, want a JSON object"}
	case !errors.As(err, &kind):
		return &RecordError{ErrBadValue, "the value is not JSON: " + err.Error()}
	}
	name, _, _ := strings.Cut(kind.Value, " ") // encoding/json adds the number to some
	is := kinds[name]
	if kind.Field == "" {
		return &RecordError{ErrBadValue, fmt.Sprintf("the value is %s, want a JSON object", is)}
	}
	field := kind.Field[strings.LastIndexByte(kind.Field, '.')+1:]
	want := wanted[field]
	if want == "" {
		want = "text"
	}
	return &RecordError{ErrBadValue, fmt.Sprintf("%s is %s, want %s", field, is, want)}
}

// timeProblem says what is wrong with a time in a value.
func timeProblem(field, value string) *RecordError {
	return &RecordError{ErrBadValue, fmt.Sprintf("%s is %s, want %s", field, shown(value, 40), wantTime)}
}

// keyProblem says that key and id differ.
func keyProblem(key, id string) *RecordError {
	return &RecordError{ErrKeyMismatch, fmt.Sprintf("order_id is %s, and the key is %s: want the same text",
		shown(id, orderclose.MaxIDBytes), shown(key, orderclose.MaxIDBytes))}
}

// shown quotes the first n bytes of the text of a field.
func shown(text string, n int) string {
	if text == "" {
		return "missing, null or empty"
	}
	return strconv.Quote(Truncate(text, n))
}

// headerProblem says what is wrong with the header name.
func (m *Message) headerProblem(reason error, name, want string) *RecordError {
	value, ok := m.Header(name)
	is := "missing"
	if ok {
		is = strconv.Quote(Truncate(value, 32))
	}
	return &RecordError{reason, fmt.Sprintf("header %s is %s, want %s", name, is, want)}
}
