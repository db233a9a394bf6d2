package wire_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestDeadLetter_KeepsTheRecordWithCauseAndCoordinates(t *testing.T) {
	m := whole(t)
	m.Topic, m.Partition, m.Offset = "delay_5m", 7, 1234567890123
	dead := wire.DeadLetter(m, "relay", "bad_due", `header due is "soon"`)
	expect.That(t, bytes.Equal(dead.Key, m.Key) && bytes.Equal(dead.Value, m.Value), "key %q, value %q", dead.Key, dead.Value)
	want := []wire.Header{
		// The headers of the record without its own cause: a dead letter has one cause.
		{Key: "due", Value: []byte("1772366760000")}, {Key: "v", Value: []byte("1")},
		{Key: "traceparent", Value: []byte("00-ab-cd-01")}, {Key: "attempt", Value: []byte("2")},
		{Key: "notdue", Value: []byte("3")}, {Key: "lane", Value: []byte("replay")},
		{Key: "pending-since", Value: []byte("1772370000000")}, {Key: "origin-topic", Value: []byte("order-close")},
		{Key: "origin-partition", Value: []byte("11")}, {Key: "origin-offset", Value: []byte("1099511627776")},
		{Key: "cause", Value: []byte("bad_due")}, {Key: "detail", Value: []byte(`header due is "soon"`)},
		{Key: "stage", Value: []byte("relay")}, {Key: "source-topic", Value: []byte("delay_5m")},
		{Key: "source-partition", Value: []byte("7")}, {Key: "source-offset", Value: []byte("1234567890123")},
	}
	expect.Same(t, dead.Headers, want, "headers")
}

func TestDeadLetter_IsCutToItsLimits(t *testing.T) {
	m := wire.Message{Key: make([]byte, 1<<20), Value: make([]byte, 1<<20)}
	for i := range 100 {
		m.Headers = append(m.Headers, wire.Header{Key: fmt.Sprint(i, strings.Repeat("k", 1<<16)), Value: make([]byte, 1<<16)})
	}
	dead := wire.DeadLetter(m, "closer", "bad_value", strings.Repeat("名", 1<<16))
	expect.That(t, len(dead.Key) == wire.MaxDeadKey && len(dead.Value) == wire.MaxDeadValue, "key %d bytes, value %d bytes", len(dead.Key), len(dead.Value))
	expect.That(t, len(dead.Headers) <= 32+6, "%d headers", len(dead.Headers))
	for _, h := range dead.Headers {
		expect.That(t, len(h.Key) <= wire.MaxDeadHeader && len(h.Value) <= wire.MaxDeadHeader, "header of %d and %d bytes", len(h.Key), len(h.Value))
	}
	detail, _ := dead.Header("detail")
	expect.That(t, utf8.ValidString(detail) && len(detail) >= wire.MaxDeadHeader-3, "detail has %d bytes, and ends %q", len(detail), detail[len(detail)-3:])
	expect.AtMost(t, dead.Size(), 256<<10, "bytes of a dead letter: a broker's limit is 1 MB by default")
}

func TestDeadLetter_AcceptsAnyMessageAndDoesNotChangeIt(t *testing.T) {
	wire.DeadLetter(wire.Message{}, "", "", "")
	m := whole(t)
	before := fmt.Sprintf("%q", m.Headers)
	wire.DeadLetter(m, "relay", "x", "y")
	expect.Equal(t, fmt.Sprintf("%q", m.Headers), before, "the headers of the record")
}

// A dead letter that is sent again and fails again has the latest cause.
func TestDeadLetter_OfADeadLetterHasTheLastCause(t *testing.T) {
	m := wire.DeadLetter(whole(t), "relay", "first", "one")
	m.Topic, m.Offset = "order-close", 5
	m = wire.DeadLetter(m, "closer", "second", "two")
	for name, want := range map[string]string{"cause": "second", "detail": "two", "stage": "closer", "source-topic": "order-close", "source-offset": "5"} {
		got, _ := m.Header(name)
		expect.That(t, got == want, "%s is %q, want %q", name, got, want)
	}
}
