package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// Producers in other languages are written from docs/wire.md. These tests check that the document agrees with the code.

func TestWire_TheExampleEqualsTheEncodedRecord(t *testing.T) {
	doc := wireTables(t)
	r := wire.Record{
		Order: orderclose.Order{
			ID: "ORD-20260301-000017", Category: "virtual",
			CreatedAt:  time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
			Due:        time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC),
			Attributes: map[string]any{"shop": "eu", "user": json.Number("9007199254740993")},
		},
	}
	r.Release = r.Order.Due
	m := must.Get(r.Encode())(t)
	headers := ""
	for _, h := range m.Headers {
		headers += fmt.Sprintf("%s: %s\n", h.Key, h.Value)
	}
	for name, want := range map[string]string{"text key": string(m.Key) + "\n", "json value": string(m.Value) + "\n", "text headers": headers} {
		expect.Same(t, block(t, doc, name), want, "%s", name)
	}
	for _, length := range []string{fmt.Sprintf("Key, %d bytes", len(m.Key)), fmt.Sprintf("Value, %d bytes", len(m.Value))} {
		expect.That(t, strings.Contains(doc, length), "wire.md does not contain %q", length)
	}
}

func TestWire_TheExampleIsDecodedAndRoutedAsDocumented(t *testing.T) {
	doc := wireTables(t)
	m := wire.Message{Key: []byte(strings.TrimSpace(block(t, doc, "text key"))), Value: []byte(strings.TrimSpace(block(t, doc, "json value")))}
	for line := range strings.Lines(block(t, doc, "text headers")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		m.Headers = append(m.Headers, wire.Header{Key: key, Value: []byte(value)})
	}
	r := must.Get(m.Decode())(t)
	expect.That(t, r.Release.Equal(r.Order.Due), "header due is %v and due_at %v", r.Release, r.Order.Due)
	c := config.Default()
	topic := c.Buckets.Pick(r.Order.Due.Sub(r.Order.CreatedAt.Add(30 * time.Second))).Topic
	want := fmt.Sprintf("goes to\n`%s`", topic)
	expect.That(t, strings.Contains(doc, want), "wire.md does not contain %q", want)
}

func TestWire_ListsTheDefaultBuckets(t *testing.T) {
	var want []string
	for i, b := range config.Default().Buckets {
		from := b.Length - b.Tolerance()
		if i == 0 {
			from = 0
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", b.Topic, orderclose.ShortDuration(b.Length),
			orderclose.ShortDuration(b.Tolerance()), orderclose.ShortDuration(from)))
	}
	expect.Same(t, rows(t, wireTables(t), "| topic |"), want, "the table of wire.md")
}

func TestWire_ListsTheHeadersAndCausesOfTheCode(t *testing.T) {
	doc := wireTables(t)
	words := func(header string) (words []string) {
		for _, row := range rows(t, doc, header) {
			words = append(words, strings.Trim(strings.Split(row, "|")[1], " `"))
		}
		return words
	}
	headers := append(words("| header | who"), words("| header | value")...)
	want := []string{
		wire.HeaderDue, wire.HeaderVersion, wire.HeaderTraceparent, wire.HeaderAttempt,
		wire.HeaderCause, wire.HeaderNotDue, wire.HeaderLane, wire.HeaderPendingSince,
		wire.HeaderOriginTopic, wire.HeaderOriginPartition, wire.HeaderOriginOffset,
		wire.HeaderCause, wire.HeaderDetail, wire.HeaderStage,
		wire.HeaderSourceTopic, wire.HeaderSourcePartition, wire.HeaderSourceOffset,
	}
	expect.Same(t, headers, want, "headers")
	causes := strings.Join(words("| `cause` | what"), " ")
	for _, err := range wire.Reasons() {
		expect.That(t, strings.Contains(causes, err.Error()), "wire.md does not list the cause %v", err)
	}
	for _, limit := range []string{
		fmt.Sprintf("at most %d KB of it", wire.MaxDeadKey>>10), fmt.Sprintf("most %d KB", wire.MaxDeadValue>>10),
		fmt.Sprintf("%d KB each", wire.MaxDeadHeader>>10), fmt.Sprintf("1 to %d bytes", orderclose.MaxIDBytes),
		"at most " + strconv.Itoa(int(orderclose.MaxTolerance/time.Second)) + " s",
	} {
		expect.That(t, strings.Contains(doc, limit), "wire.md does not contain %q", limit)
	}
}

func wireTables(t *testing.T) string {
	t.Helper()
	data := must.Get(os.ReadFile("../../docs/wire.md"))(t)
	return string(data)
}

func TestWire_TheEventEqualsTheEncodedEvent(t *testing.T) {
	due := time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC)
	const id = "ORD-20260301-000017"
	value, err := orderclose.OrderClosed{
		OrderID: id, Category: "virtual", Due: due, ClosedAt: due.Add(2 * time.Millisecond), Path: orderclose.PathPipeline, Version: 2,
		Release: []orderclose.Release{{SKU: "ink", Quantity: 2, Key: wire.ReleaseKey(id, "ink", "close")}},
	}.Encode()
	diff := cmp.Diff(string(value)+"\n", block(t, wireTables(t), "json event"))
	expect.That(t, err == nil && diff == "", "%v (-code +wire.md):\n%s", err, diff)
}

func TestWire_TheEventOfALatePaymentEqualsTheEncodedEvent(t *testing.T) {
	event := orderclose.OrderPaidLate{
		OrderID: "ORD-20260301-000017", PaymentID: "pi_3Nabc", Amount: 1250, Currency: "EUR", Source: "callback",
		FoundAt: time.Date(2026, 3, 1, 12, 5, 3, 250_000_000, time.UTC),
	}
	value, err := event.Encode()
	diff := cmp.Diff(string(value)+"\n", block(t, wireTables(t), "json paid late"))
	expect.That(t, err == nil && diff == "", "%v (-code +wire.md):\n%s", err, diff)
	if id, decoded, err := orderclose.DecodeOrderPaidLate(value); err != nil || id != event.ID() || decoded != event {
		t.Errorf("decoded: %q, %+v, %v", id, decoded, err)
	}
	if _, _, err := orderclose.DecodeOrderClosed(value); !errors.Is(err, orderclose.ErrOtherEvent) {
		t.Errorf("a reader of closes gets %v", err)
	}
}

func TestWire_TheEventOfAPaidOrderEqualsTheEncodedEvent(t *testing.T) {
	due := time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC)
	want := orderclose.OrderPaid{OrderID: "ORD-20260301-000017", Category: "virtual", Due: due, PaidAt: due.Add(148 * time.Millisecond), Version: 2}
	value, err := want.Encode()
	diff := cmp.Diff(string(value)+"\n", block(t, wireTables(t), "json paid"))
	expect.That(t, err == nil && diff == "", "%v (-code +wire.md):\n%s", err, diff)
	id, got, err := orderclose.DecodeOrderPaid(value)
	if diff := cmp.Diff(want, got); err != nil || diff != "" || id != want.ID() {
		t.Errorf("id %s, %v (-want +got):\n%s", id, err, diff)
	}
	if _, _, err := orderclose.DecodeOrderClosed(value); !errors.Is(err, orderclose.ErrOtherEvent) {
		t.Errorf("a reader of closes gets %v", err)
	}
}

// block returns the content of the fenced block that begins with ```name.
func block(t *testing.T, doc, name string) string {
	t.Helper()
	m := regexp.MustCompile("(?s)```" + name + "\n(.*?)```").FindStringSubmatch(doc)
	must.That(t, m != nil, "wire.md has no block %q", name)
	return m[1]
}

// rows returns the rows of the table whose first line begins with header.
func rows(t *testing.T, doc, header string) (rows []string) {
	t.Helper()
	_, rest, found := strings.Cut(doc, "\n"+header)
	for i, line := range strings.Split(rest, "\n") {
		if i >= 2 && !strings.HasPrefix(line, "|") {
			break
		}
		if i >= 2 {
			rows = append(rows, line)
		}
	}
	must.That(t, found && len(rows) != 0, "wire.md has no table %q", header)
	return rows
}
