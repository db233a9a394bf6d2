package producer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// execs counts statements.
type execs struct {
	orderclose.Tx
	n int
}

func (e *execs) Exec(context.Context, string, ...any) (int64, error) {
	e.n++
	return 1, nil
}

// The delay may equal the maximum at any moment: due times are rounded up, and the
// clock of the checkout's database may be ahead.
func TestProducers_AcceptADelayEqualToTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 24 * time.Hour
		a, rows := &fakeAppender{}, &execs{}
		p := must.Get(New(Options{
			Appender: a, Buckets: orderclose.Buckets{{Topic: "delay_1h", Length: time.Hour}}, CloseTopic: "close",
			Delays: orderclose.Delays{ByCategory: map[string]time.Duration{"patient": most}}, MaxDelay: most,
		}))(t)
		defer p.Close()
		x := must.Get(NewOutbox(OutboxOptions{Dialect: MySQL, MaxDelayFunc: p.MaxDelay}))(t)
		const orders = 1000
		for i := range orders {
			time.Sleep(1234567 * time.Nanosecond)
			o := p.Order(fmt.Sprint(i), time.Now().Add(time.Duration(i)*time.Millisecond), "patient")
			must.Do(t, p.Schedule(t.Context(), o))
			must.Do(t, x.Add(t.Context(), rows, o))
		}
		expect.That(t, len(a.topics) == orders && rows.n == orders, "%d scheduled and %d added of %d orders", len(a.topics), rows.n, orders)
	})
}
