package outbox

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// A row is scheduled even if this clock is behind, or if the maximum was larger when
// the row was written.
func TestSchedules_EveryCommittedRowIsScheduled(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k := Schedules(func() Scheduling {
		return Scheduling{
			Buckets:    orderclose.Buckets{{Topic: "1m", Length: time.Minute}, {Topic: "1h", Length: time.Hour}},
			CloseTopic: "close", Now: func() time.Time { return now.Add(-time.Hour) },
		}
	})
	for _, c := range []struct {
		ahead time.Duration
		topic string
	}{
		{-2 * time.Hour, "close"}, {orderclose.DefaultMaxDelay, "1h"}, {365 * 24 * time.Hour, "1h"}, {wire.MaxDelayLimit, ""},
	} {
		o := orderclose.Order{ID: "o", CreatedAt: now, Due: now.Add(c.ahead)}
		payload := must.Get(wire.Record{Order: o}.SchedulePayload())(t)
		topic, _, err := k.route(wire.OutboxRow{ID: 1, OrderID: "o", Payload: payload}, &testkit.Log{})
		expect.That(t, topic == c.topic && (err == nil) != (c.topic == ""), "due in %v: topic %q, %v; want %q", c.ahead, topic, err, c.topic)
	}
}
