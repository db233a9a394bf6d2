package producer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// clockTx is a transaction of a database whose clock shows a time.
type clockTx struct {
	fakeTx
	micros int64
}

func (t *clockTx) Query(_ context.Context, _ string, _ []any, each func(func(...any) error) error) error {
	return each(func(columns ...any) error {
		*columns[0].(*int64) = t.micros
		return nil
	})
}

// The clock of this machine does not count: an hour behind, it would have the order closed at once.
func TestProducer_OrderInUsesTheClockOfTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		p := must.Get(New(Options{Appender: &fakeAppender{}, TopicsFile: "../topics.yaml"}))(t)
		for _, d := range []Dialect{MySQL, Postgres} {
			o := must.Get(p.OrderIn(t.Context(), d, &clockTx{micros: now.UnixMicro()}, "o", orderclose.Facts{Categories: []string{"virtual"}}))(t)
			expect.That(t, o.CreatedAt.Equal(now) && o.Due.Equal(now.Add(5*time.Minute)) && o.Category == "virtual", "%s: %+v", d, o)
		}
	})
}

func TestProducer_ReportsAnOrderThatIsDueAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		report := func(o orderclose.Order) { reported = append(reported, o.ID) }
		p := must.Get(New(Options{Appender: &fakeAppender{}, TopicsFile: "../topics.yaml", OnDueAlready: report}))(t)
		x := newOutbox(t, OutboxOptions{Dialect: MySQL, OnDueAlready: report})
		for id, due := range map[string]time.Time{"due": time.Now(), "not due": time.Now().Add(time.Minute)} {
			o := orderclose.Order{ID: id, CreatedAt: time.Now(), Due: due}
			must.Do(t, p.Schedule(t.Context(), o))
			must.Do(t, x.Add(t.Context(), &fakeTx{}, o))
		}
		expect.Same(t, reported, []string{"due", "due"}, "reported")
	})
}
