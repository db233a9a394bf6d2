package deadletters

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// letterOf decodes a dead letter.
func letterOf(m wire.Message) Letter { return Read(0, m) }

// again is Again of a topic.
func again(l Letter, now time.Time) (topic string, m wire.Message, refusal string) {
	return (&fakeLog{}).topic().Again(l, buckets, now)
}

func TestAgain_ReturnsTheDestination(t *testing.T) {
	for what, c := range map[string]struct {
		due, release time.Time
		want         string
	}{
		"overdue":      {now.Add(-time.Hour), now, shortest},
		"due now":      {now, now, shortest},
		"due soon":     {now.Add(time.Second), now.Add(time.Second), "delay_1m"},
		"due later":    {now.Add(3 * time.Hour), now.Add(3 * time.Hour), "delay_1h"},
		"due too late": {now.Add(wire.MaxDelayLimit + time.Hour), time.Time{}, ""},
	} {
		topic, m, refusal := again(letterOf(dead(t, "a", "failed", c.due)), now)
		expect.That(t, topic == c.want && (refusal == "") != (c.want == ""), "%s: %q, %q; want %q", what, topic, refusal, c.want)
		if c.want == "" {
			continue
		}
		r := must.Get(m.Decode())(t)
		want := wire.Record{
			Order:   orderclose.Order{ID: "a", Category: "book", CreatedAt: now.Add(-2 * time.Hour), Due: c.due, Attributes: map[string]any{"shop": "eu"}},
			Release: c.release, Traceparent: "00-ab-cd-01", Lane: wire.LaneReplay,
		}
		expect.Equal(t, cmp.Diff(want, r, cmp.Comparer(time.Time.Equal)), "", "%s (-want +got):\n", what)
		for _, h := range m.Headers {
			expect.That(t, !strings.HasPrefix(h.Key, "source-") && h.Key != "detail" && h.Key != "stage" && h.Key != "cause",
				"%s: it has a header %s", what, h.Key)
		}
	}
}

func TestAgain_RefusesIncompleteRecords(t *testing.T) {
	change := func(change func(m *wire.Message)) wire.Message {
		m := recordOf(t, "a", now)
		m.Topic = "order-close"
		change(&m)
		return m
	}
	big := bytes.Repeat([]byte("x"), wire.MaxDeadValue+1)
	for what, c := range map[string]struct {
		cause string
		m     wire.Message
		want  string
	}{
		"no key":        {"no_key", change(func(m *wire.Message) { m.Key = nil }), "no_key"},
		"other version": {"bad_version", change(func(m *wire.Message) { m.Headers[1].Value = []byte("9") }), "bad_version"},
		"no JSON":       {"bad_value", change(func(m *wire.Message) { m.Value = []byte("{") }), "bad_value"},
		"other id":      {"key_mismatch", change(func(m *wire.Message) { m.Key = []byte("b") }), "key_mismatch"},
		"corrupt":       {"corrupt", wire.Message{Topic: "order-close"}, "only its offsets are known"},
		"long value":    {"refused", change(func(m *wire.Message) { m.Value = append(m.Value[:len(m.Value)-1], big...) }), "value was cut"},
		"long key":      {"refused", change(func(m *wire.Message) { m.Key = big }), "key was cut"},
		"long header":   {"refused", change(func(m *wire.Message) { m.Headers = []wire.Header{{Key: "x", Value: big}} }), `header "x" was cut`},
		"many headers":  {"refused", change(func(m *wire.Message) { m.Headers = make([]wire.Header, 40) }), "only the first 32"},
	} {
		topic, _, refusal := again(letterOf(wire.DeadLetter(c.m, "closer", c.cause, "")), now)
		expect.That(t, topic == "" && strings.Contains(refusal, c.want), "%s: to %q, %q; want a refusal with %q", what, topic, refusal, c.want)
	}
}

// Any part of the pipeline may write any dead letter, so an event is not sent again: the database knows which events there were.
func TestAgain_AnEventIsRefused(t *testing.T) {
	for _, source := range []string{"events", OutboxOfEvents} {
		m := wire.Message{Topic: source, Partition: 1, Offset: 5, Key: []byte("a"), Value: []byte(`{"id":1}`)}
		topic, _, refusal := again(letterOf(wire.DeadLetter(m, "reader", "failed", "no")), now)
		expect.That(t, topic == "" && strings.Contains(refusal, "orderclose events again"), "an event of %s goes to %q, %q", source, topic, refusal)
	}
}

// A dead letter of a record that was sent again can be sent again too.
func TestAgain_ARecordMayBecomeADeadLetterTwice(t *testing.T) {
	_, m, _ := again(letterOf(dead(t, "a", "first", now)), now)
	m.Topic = shortest
	l := letterOf(wire.DeadLetter(m, "closer", "second", "again"))
	if topic, second, refusal := again(l, now); topic != shortest || !cmp.Equal(m.Headers, second.Headers) || l.Cause != "second" ||
		l.Source.Topic != shortest {
		t.Errorf("to %q, %q; %+v", topic, refusal, l)
	}
}
