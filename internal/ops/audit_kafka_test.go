package ops

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// topics are topics of one partition each, in memory.
type topics struct {
	Log
	records map[string][]wire.RawRecord
}

func (l topics) Partitions(context.Context, string) (int, error) { return 1, nil }

func (l topics) Commits(context.Context, string, string, int) ([]kafka.Commit, error) {
	return make([]kafka.Commit, 1), nil
}

func (l topics) Bounds(_ context.Context, topic string, _ int) (first, end int64, err error) {
	return 0, int64(len(l.records[topic])), nil
}

func (l topics) OffsetAt(_ context.Context, topic string, _ int, t time.Time) (int64, error) {
	for i, r := range l.records[topic] {
		if !r.AppendedAt().Before(t) {
			return int64(i), nil
		}
	}
	return int64(len(l.records[topic])), nil
}

func (l topics) Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	return offsetsOf(ctx, l, queries)
}

func (l topics) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	return wire.Fetched{Records: l.records[at.Topic][at.Offset:], Next: int64(len(l.records[at.Topic]))}, nil
}

func (l topics) Idempotent(func(int)) wire.AppendFunc { return nil }

// put appends a record a second after its order was due.
func (l topics) put(topic string, m wire.Message) {
	m.Offset, m.Appended = int64(len(l.records[topic])), due.Add(time.Second)
	l.records[topic] = append(l.records[topic], m.Raw())
}

// storeWithEvents is a database whose closes have events.
type storeWithEvents struct{ manyOrders }

func (storeWithEvents) AuditRules() store.AuditRules {
	return store.AuditRules{Exclusive: true, Lines: true, Event: "order.closed"}
}

// TestRun_AnEventThatKafkaRefusedIsFoundAmongTheDeadLetters: the dead letter of the event
// counts, a dead letter of the order itself does not.
func TestRun_AnEventThatKafkaRefusedIsFoundAmongTheDeadLetters(t *testing.T) {
	log := topics{records: map[string][]wire.RawRecord{}}
	for i := range 10 {
		id := fmt.Sprintf("order-%08d", i)
		value, err := orderclose.OrderClosed{Type: "order.closed", OrderID: id}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		m := wire.Message{Key: []byte(id), Value: value, Headers: []wire.Header{{Key: orderclose.HeaderContentType, Value: []byte(orderclose.EventContentType)}}}
		switch i {
		case 3:
			m.Topic = "outbox_events"
			log.put("dead", wire.DeadLetter(m, "outbox", "refused", "too large"))
		case 4:
			log.put("dead", wire.DeadLetter(wire.Message{Key: m.Key, Topic: "close"}, "closer", "failed", "no stock row"))
		default:
			log.put("events", m)
		}
	}
	fixes := map[string]string{}
	cfg := &config.Config{Topics: config.Topics{Events: "events", Close: "close", Replay: "replay", DeadLetter: "dead"}}
	_, err := Audit(t.Context(), AuditOptions{
		Store: storeWithEvents{manyOrders{n: 10, each: func(int) {}}}, Log: log, Config: cfg, From: due, To: due.Add(time.Minute), Bound: time.Hour,
		OnFinding: func(f Finding) error {
			if f.Kind == NoEvent {
				fixes[f.Order] = f.Fix
			}
			return nil
		},
	})
	if err != nil || len(fixes) != 2 || !strings.Contains(fixes["order-00000003"], "orderclose dlq redrive --order order-00000003") || !strings.Contains(fixes["order-00000004"], "by hand") {
		t.Errorf("%q, %v", fixes, err)
	}
}
