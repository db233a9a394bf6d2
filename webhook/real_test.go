package webhook

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
	"github.com/orderclose/orderclose/internal/wire"
)

// eachDatabase runs a test with the DSN of an empty database on each server.
func eachDatabase(t *testing.T, test func(t *testing.T, dsn string)) {
	for kind, variable := range map[string]string{"mariadb": environ.EnvDSN, "mysql": "ORDERCLOSE_MYSQL_DSN", "postgres": "ORDERCLOSE_POSTGRES_DSN"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dsn := os.Getenv(variable)
			must.That(t, dsn != "" || os.Getenv("REQUIRE_REAL") != "1", "%s names no server, and REQUIRE_REAL=1 wants one", variable)
			if dsn == "" {
				t.Skipf("%s names no server", variable)
			}
			test(t, storetest.NewDatabase(t, dsn))
		})
	}
}

func onServer(t *testing.T, dsn string) *rig {
	t.Helper()
	s := must.Get(store.Open(store.Options{DSN: dsn}))(t)
	t.Cleanup(func() { s.Close() })
	return newRigOn(t, s)
}

// Two senders share the events of many orders. Some fail at first, and one is no event.
func TestReal_EventsAreTakenSentAndDeleted(t *testing.T) {
	eachDatabase(t, func(t *testing.T, dsn string) {
		r := onServer(t, dsn)
		r.poll = 20 * time.Millisecond
		failed := map[string]bool{}
		var mu sync.Mutex
		r.set(func(_ context.Context, q request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(q.event, "o1/") && !failed[q.event] {
				failed[q.event] = true
				return status(http.StatusBadGateway), nil
			}
			return status(http.StatusOK), nil
		})
		var ids []string
		for n := range 5 {
			for order := range 60 {
				ids = append(ids, fmt.Sprintf("o%d/%d", order, n))
			}
		}
		r.write(ids[:1]...)
		r.row("bad", "no event")
		r.row("large", `"`+strings.Repeat("x", wire.MaxRecordBytes)+`"`)
		stop, other := r.start(), r.start()
		r.write(ids[1:]...)
		await := func(what string, is func(s state) bool) {
			t.Helper()
			storetest.Await(t, what, func() (string, bool) {
				s := r.now()
				return fmt.Sprintf("%+v", s), is(s)
			})
		}
		await("all events are sent", func(s state) bool { return s.Waiting == 2 && s.Refused == 2 })
		got := r.take()
		for order := range 60 {
			name := fmt.Sprint("o", order)
			sent := slices.Compact(events(of(name, got)))
			expect.Same(t, sent, []string{name + "/0", name + "/1", name + "/2", name + "/3", name + "/4"}, "of an order")
		}
		for _, q := range got {
			expect.NoError(t, q.verify())
		}
		expect.Equal(t, r.count("SELECT COUNT(*) FROM outbox_events"), 0, "rows of outbox_events")
		expect.Equal(t, r.now().OtherReader, 0, "another reader")
		expect.That(t, strings.HasPrefix(r.now().First[0], "order bad: the row is no CloudEvent"), "%v", r.now().First)
		waits := must.Get(r.OrderHistory(t.Context(), "bad"))(t).PendingEvents
		expect.That(t, len(waits) == 1 && waits[0].Webhook && waits[0].Type == "" && waits[0].Error != "" && !waits[0].At.IsZero(), "%+v", waits)
		stop()
		other()
		expect.Equal(t, r.count("SELECT COUNT(*) FROM orderclose_webhook_events"), 2, "events that are kept")
	})
}

// A dispatcher of another program has some rows: the others are taken, and the check says so.
func TestReal_AnotherReaderIsSeen(t *testing.T) {
	eachDatabase(t, func(t *testing.T, dsn string) {
		r := onServer(t, dsn)
		r.write("a/1", "b/1", "c/1")
		expect.NoError(t, r.Alone(t.Context()))
		n, err := r.Dispatch(t.Context(), wire.EventOutbox, 0, 2, func(ctx context.Context, rows []wire.OutboxRow) (done []int64) {
			s, err := r.step(ctx, nil, 0, 0, 0)
			must.Do(t, err)
			expect.That(t, s.taken == 1 && s.others == 2, "%+v", s)
			return []int64{rows[0].ID, rows[1].ID}
		})
		expect.That(t, n == 2 && err == nil, "%d rows, %v", n, err)
		expect.Equal(t, r.count("SELECT COUNT(*) FROM outbox_events"), 0, "rows of outbox_events")
		expect.That(t, r.now().otherReader(), "%+v", r.now())
		expect.Says(t, r.Alone(t.Context()), "another program takes rows", "at a start")
	})
}

// Events that together are longer than one transaction takes, and than a statement may be, are taken: by default 16 MB on MariaDB.
func TestReal_LongEventsAreTaken(t *testing.T) {
	eachDatabase(t, func(t *testing.T, dsn string) {
		r := onServer(t, dsn)
		for range takeBatch {
			r.row("a", `{"data":"`+strings.Repeat("x", 100<<10)+`"}`)
		}
		taken := 0
		for more := true; more; {
			s := must.Get(r.step(t.Context(), nil, 0, 0, 0))(t)
			taken, more = taken+s.taken, s.more
		}
		expect.Equal(t, taken, takeBatch, "events that were taken")
	})
}

// A close that has not committed keeps no other event waiting.
func TestReal_AnOpenTransactionKeepsNoEvent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, dsn string) {
		r := onServer(t, dsn)
		tx := must.Get(r.DB().BeginTx(t.Context(), nil))(t)
		defer func() { _ = tx.Rollback() }()
		now := must.Get(r.Now(t.Context()))(t)
		_, err := tx.ExecContext(t.Context(), "INSERT INTO outbox_events (order_id, payload, created_at) VALUES ('open', '{}', ?)", now)
		must.Do(t, err)
		r.write("a/1")
		s := must.Get(r.step(t.Context(), nil, 1, 0, time.Minute))(t)
		expect.That(t, s.taken == 1 && s.others == 0 && len(s.events) == 1, "%+v", s)
		must.Do(t, tx.Commit())
		s = must.Get(r.step(t.Context(), nil, 1, 0, time.Minute))(t)
		expect.That(t, s.taken == 1 && s.others == 0 && s.events[0].order == "open", "%+v", s)
	})
}
