package closer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// toClose is a partition of the close topic.
var toClose = testkit.TopicPartition{Topic: "order-close"}

// orderLog is a log of order records.
type orderLog struct{ testkit.Log }

// doneBelow is the committed offset of the first partition of the close topic.
func (l *orderLog) doneBelow() int64 { return l.DoneBelow(toClose) }

// add appends the record of a due order to the close topic.
func (l *orderLog) add(t *testing.T, id string) {
	t.Helper()
	l.addAt(t, 0, id, time.Now())
}

// addAt appends the record of an order to a partition of the close topic. It becomes visible when the order is due.
func (l *orderLog) addAt(t *testing.T, partition int, id string, due time.Time) {
	t.Helper()
	r := wire.Record{Order: orderclose.Order{ID: id, CreatedAt: time.Now(), Due: due}, Release: due}
	l.putAt(t, testkit.TopicPartition{Topic: toClose.Topic, Partition: partition}, r, due)
}

func (l *orderLog) put(t *testing.T, at testkit.TopicPartition, r wire.Record) {
	t.Helper()
	l.putAt(t, at, r, time.Now())
}

// putAt appends a record that becomes visible at the append time.
func (l *orderLog) putAt(t *testing.T, at testkit.TopicPartition, r wire.Record, appended time.Time) {
	t.Helper()
	m := must.Get(r.Encode())(t)
	m.Appended = appended
	l.Put(at, m)
}

// down is a Store.On that fails until a time.
func down(until time.Time) func(context.Context, []orderclose.CloseRequest) error {
	return func(context.Context, []orderclose.CloseRequest) error {
		if time.Now().Before(until) {
			return fmt.Errorf("%w: no connection", orderclose.ErrUnavailable)
		}
		return nil
	}
}

// always is a Store.Takes with a constant time.
func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func runCloser(t *testing.T, log partition.Log, store Store, batch int) (stop func()) {
	t.Helper()
	return startCloser(t, Options{Log: log, Store: store, Batch: batch})
}

// startCloser starts a closer with the groups and topics of the tests. By default it has two buckets, and OnHang fails the test.
func startCloser(t *testing.T, o Options) (stop func()) {
	t.Helper()
	o.Group, o.CloseTopic, o.DeadLetterTopic = "g", toClose.Topic, "dead"
	if o.Buckets == nil {
		o.Buckets = orderclose.Buckets{{Topic: "delay_10s", Length: 10 * time.Second}, {Topic: "delay_1m", Length: time.Minute}}
	}
	if o.OnHang == nil {
		o.OnHang = func(why string) { t.Errorf("OnHang: %s", why) }
	}
	return testkit.Start(t, must.Get(New(o))(t).Run)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
