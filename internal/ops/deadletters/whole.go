package deadletters

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"
)

// Whole is a dead letter with its record.
type Whole struct {
	Letter
	Headers []Header `json:"headers"`
	// Value is the record's value: JSON if it is valid JSON, or else text. Base64 has the value if it is
	// neither.
	Value        any    `json:"value,omitempty"`
	Base64       []byte `json:"value_base64,omitempty"`
	OrderProblem string `json:"order_problem,omitempty"` // why it is not a valid record of an order
}

// Header is a header of a record, as text.
type Header struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Whole returns the dead letter with its record.
func (l Letter) Whole() Whole {
	w := Whole{Letter: l, Headers: []Header{}}
	for _, h := range l.Record.Headers {
		w.Headers = append(w.Headers, Header{h.Key, string(h.Value)})
	}
	switch value := l.Record.Value; {
	case json.Valid(value):
		w.Value = json.RawMessage(value)
	case utf8.Valid(value):
		w.Value = string(value)
	default:
		w.Base64 = value
	}
	if _, err := l.Record.Decode(); err != nil {
		w.OrderProblem = err.Error()
	}
	return w
}

// Text returns the value for people: text, or base64.
func (w Whole) Text() string {
	switch v := w.Value.(type) {
	case json.RawMessage:
		return string(v)
	case string:
		return v
	}
	return base64.StdEncoding.EncodeToString(w.Base64)
}
