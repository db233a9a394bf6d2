package producer

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// fakeTx records the last statement.
type fakeTx struct {
	orderclose.Tx
	query string
	args  []any
	err   error
}

func (f *fakeTx) Exec(_ context.Context, query string, args ...any) (int64, error) {
	f.query, f.args = query, args
	return 1, f.err
}

func newOutbox(t *testing.T, o OutboxOptions) *Outbox {
	t.Helper()
	x := must.Get(NewOutbox(o))(t)
	return x
}

// An added order becomes byte by byte the record that Schedule would have sent.
func TestOutbox_AddsTheRecordThatScheduleWouldSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := orderclose.Order{
			ID: "订单-17", Category: "virtual", CreatedAt: time.Now(), Due: time.Now().Add(77*time.Second + 1),
			Attributes: map[string]any{"user": 9007199254740993, "name": "'; DROP TABLE"},
		}
		a, tx := &fakeAppender{}, &fakeTx{}
		must.Do(t, errors.Join(newProducer(t, a).Schedule(t.Context(), order), newOutbox(t, OutboxOptions{Dialect: MySQL}).Add(t.Context(), tx, order)))
		expect.That(t, tx.query == "INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES (?, ?, UTC_TIMESTAMP(3))", "ran %s", tx.query)
		row := wire.OutboxRow{OrderID: tx.args[0].(string), Payload: []byte(tx.args[1].(string))}
		m, due, err := row.Schedule()
		if diff := cmp.Diff(a.last, m); diff != "" || err != nil || !due.Equal(orderclose.CeilMilli(order.Due)) {
			t.Errorf("due %v, %v (-direct +outbox):\n%s", due, err, diff)
		}
	})
}

func TestOutbox_AddsTheCallersTraceContext(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tx := &fakeTx{}
	order := orderclose.Order{ID: "o", CreatedAt: time.Now(), Due: time.Now()}
	x := newOutbox(t, OutboxOptions{Dialect: SQLite, Traceparent: func(context.Context) string { return trace }})
	must.Do(t, x.Add(t.Context(), tx, order))
	m, _, err := wire.OutboxRow{OrderID: "o", Payload: []byte(tx.args[1].(string))}.Schedule()
	want, err2 := wire.Record{Order: order, Release: order.Due, Traceparent: trace}.Encode()
	if diff := cmp.Diff(want, m); diff != "" || err != nil || err2 != nil {
		t.Errorf("%v, %v (-want +got):\n%s", err, err2, diff)
	}
}

func TestOutbox_RejectsInvalidOrdersAndWritesNothing(t *testing.T) {
	due := time.Now().Add(time.Minute)
	for name, c := range map[string]struct {
		order orderclose.Order
		want  error
	}{
		"no id":           {orderclose.Order{Due: due}, orderclose.ErrEmptyID},
		"bad id":          {orderclose.Order{ID: " o", Due: due}, orderclose.ErrInvalidID},
		"no due":          {orderclose.Order{ID: "o"}, orderclose.ErrNoDue},
		"due in 2 hours":  {orderclose.Order{ID: "o", Due: due.Add(2 * time.Hour)}, orderclose.ErrDueTooFar},
		"no JSON":         {orderclose.Order{ID: "o", Due: due, Attributes: map[string]any{"x": math.Inf(1)}}, nil},
		"a year too late": {orderclose.Order{ID: "o", Due: due, CreatedAt: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}, nil},
	} {
		tx := &fakeTx{}
		err := newOutbox(t, OutboxOptions{Dialect: MySQL, MaxDelay: time.Hour}).Add(t.Context(), tx, c.order)
		expect.That(t, err != nil && (c.want == nil || errors.Is(err, c.want)), "%s: %v, want %v", name, err, c.want)
		expect.Equal(t, tx.query, "", "%s: the statement", name)
	}
}

func TestOutbox_WrapsTheDatabasesError(t *testing.T) {
	gone := errors.New("the server has gone away")
	err := newOutbox(t, OutboxOptions{Dialect: MySQL}).Add(t.Context(), &fakeTx{err: gone}, orderclose.Order{ID: "o-1", Due: time.Now()})
	expect.That(t, errors.Is(err, gone) && strings.Contains(err.Error(), "o-1"), "%v", err)
}

func TestNewOutbox_RejectsInvalidOptions(t *testing.T) {
	for _, o := range []OutboxOptions{{}, {Dialect: "oracle"}, {Dialect: SQLite, Database: "close"}, {Dialect: MySQL, TopicsFile: "no-such.yaml"}} {
		_, err := NewOutbox(o)
		expect.That(t, err != nil, "accepted %+v", o)
	}
	x := newOutbox(t, OutboxOptions{Dialect: MySQL, Database: "close", TopicsFile: "../topics.yaml"})
	expect.That(t, strings.HasPrefix(x.insert, "INSERT INTO `close`.outbox_schedules ") && x.o.MaxDelay == orderclose.DefaultMaxDelay, "%+v", x)
}
