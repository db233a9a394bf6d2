package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/producer"
)

var outboxPromises = []promise[shop]{
	{name: "DispatchDeletesPublishedRowsAndKeepsTheRest", test: dispatchDeletesWhatIsDone, tags: Settings},
	{name: "DispatchBeginsAfterAnID", test: dispatchAfterID},
	{name: "ADispatchHasABoundedNumberOfBytes", test: dispatchIsBounded, tags: Dialect | Settings},
	{name: "DispatchersShareTheRows", test: dispatchersShareTheRows, tags: Dialect},
	{name: "NoRowIsDispatchedTwiceUnderLoad", test: noRowIsDispatchedTwice, tags: Dialect | File},
	{name: "RowsAreDispatchedAgainWhenADispatcherFails", test: rowsAreDispatchedAgain, tags: Dialect},
	{name: "ALowerIdThatCommitsLaterIsFound", test: lowerIDCommitsLater, tags: Dialect | Settings},
	{name: "DispatchBlocksNoCheckoutAndNoClose", test: dispatchBlocksNobody, tags: Dialect},
	{name: "DispatchersDeleteNeighboringRows", test: dispatchersDeleteNeighboringRows, tags: Dialect},
	{name: "BacklogHasTheAgeOfTheOldest", test: backlogTellsTheOldest, tags: Dialect | Settings},
	{name: "OldRowsAreDropped", test: dropsOldRows},
	{name: "EachEventHasItsKindAndNoPayloadIsRefused", test: eventsHaveKinds, tags: Dialect | Settings},
	{name: "AnUnknownOutboxIsRefused", test: unknownOutbox},
	{name: "AnOrderIsAddedIfAndOnlyIfItsTransactionCommits", test: addedWithItsTransaction},
}

// event inserts an outbox row that was written ago earlier.
func (s *shop) event(id int, ago time.Duration) {
	s.Helper()
	s.exec("INSERT INTO outbox_events (id, order_id, payload, created_at) VALUES (?, ?, ?, ?)",
		id, fmt.Sprintf("o%d", id), fmt.Sprintf(`{"n":%d}`, id), s.time(s.now().Add(-ago)))
}

// dispatch reads up to limit rows, and the store deletes those whose ids publish returns.
func (s *shop) dispatch(limit int, publish func(ids []int64) []int64) []int64 {
	s.Helper()
	return s.dispatchAfter(0, limit, publish)
}

// dispatchAfter does the same with rows above an id.
func (s *shop) dispatchAfter(after int64, limit int, publish func(ids []int64) []int64) []int64 {
	s.Helper()
	var ids []int64
	n := must.Get(s.Dispatch(s.Context(), wire.EventOutbox, after, limit, func(_ context.Context, rows []wire.OutboxRow) []int64 {
		for _, r := range rows {
			ids = append(ids, r.ID)
		}
		return publish(ids)
	}))(s)
	want(s, "number of rows", n, len(ids))
	return ids
}

// The rows are those that a checkout may insert: small and large ones, and such as no record can have. Each is passed once, a few MB at once.
func dispatchIsBounded(t *testing.T, s *shop) {
	s.migrated()
	sizes := []int{10, 5 << 10, 3 << 20, wire.MaxRecordBytes, 1 << 20, 2_000_000, 4 << 10, 14_000_000, 10, wire.MaxRecordBytes + 1, 20}
	for i, size := range sizes {
		s.exec("INSERT INTO outbox_schedules (id, order_id, payload, created_at) VALUES (?, ?, ?, ?)", i+1, fmt.Sprint("o", i+1),
			`{"a":"`+strings.Repeat("x", size-8)+`"}`, s.time(s.now()))
	}
	var ids []int64
	for round := 0; len(ids) < len(sizes) && round < len(sizes); round++ {
		passed, bytes := 0, 0
		n := must.Get(s.Dispatch(s.Context(), wire.ScheduleOutbox, 0, 100, func(_ context.Context, rows []wire.OutboxRow) (done []int64) {
			for _, r := range rows {
				size := sizes[r.ID-1]
				if tooLarge := size > wire.MaxRecordBytes; tooLarge != (r.TooLarge == size) || tooLarge == (len(r.Payload) == size) {
					t.Errorf("row %d has %d of %d bytes, too large: %d", r.ID, len(r.Payload), size, r.TooLarge)
				}
				bytes += len(r.Payload)
				done = append(done, r.ID)
			}
			passed, ids = len(rows), append(ids, done...)
			return done
		}))(s)
		left := len(ids) < len(sizes)
		expect.That(t, left && n == 100 || !left && n == passed, "%d rows were passed, %d are counted, rows are left: %v", passed, n, left)
		expect.AtMost(t, bytes, 5<<20, "bytes that were passed at once")
	}
	expect.Same(t, ids, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, "the rows")
}

func all(ids []int64) []int64  { return ids }
func none(ids []int64) []int64 { return nil }

// The database finds the kind in the payload of each row: of this program, of an older one, and of a service that writes its own SQL.
func eventsHaveKinds(t *testing.T, s *shop) {
	s.migrated()
	cloud := `{"specversion":"1.0","id":"%[1]s/a","source":"/orderclose","type":"%[1]s","subject":"\"type\":\"x\"","data":{"type":"x","event":"x"}}`
	var expected []string
	for i, row := range []struct{ payload, kind string }{
		{`{"due_at":"2026-03-01T12:05:00Z","columns":{"type":"x","event":"x"}}`, "order.closed"},
		{` { "category": "event", "due_at" : "2026-03-01T12:05:00Z"}`, "order.closed"},
		{`{"event":"booking.expired","due_at":"2026-03-01T12:05:00Z"}`, "booking.expired"},
		{fmt.Sprintf(cloud, "order.closed"), "order.closed"},
		{fmt.Sprintf(cloud, "order.paid"), "order.paid"},
		{strings.ReplaceAll(fmt.Sprintf(cloud, "order.paid_late"), `":"`, `" : "`), "order.paid_late"},
		{fmt.Sprintf(cloud, strings.Repeat("è", 80)), strings.Repeat("è", 64)},
		{`closed "type":"x"`, ""},
	} {
		id := strconv.Itoa(i)
		s.exec("INSERT INTO outbox_events (order_id, payload, created_at) VALUES (?, ?, ?)", id, row.payload, s.time(s.now()))
		expected = append(expected, row.kind)
	}
	want(t, "kinds", s.texts("SELECT COALESCE(kind, '') FROM outbox_events ORDER BY id"), expected)
}

func dispatchAfterID(t *testing.T, s *shop) {
	s.migrated()
	for id := range 5 {
		s.event(id+1, 0)
	}
	want(t, "after the second", s.dispatchAfter(2, 2, all), []int64{3, 4})
	want(t, "after the fourth", s.dispatchAfter(4, 9, none), []int64{5})
	want(t, "after the last", s.dispatchAfter(5, 9, all), nil)
	want(t, "from the beginning", s.dispatch(9, all), []int64{1, 2, 5})
}

func dispatchDeletesWhatIsDone(t *testing.T, s *shop) {
	s.migrated()
	for id := range 5 {
		s.event(id+1, 0)
	}
	want(t, "the first", s.dispatch(3, func([]int64) []int64 { return []int64{1, 3} }), []int64{1, 2, 3})
	want(t, "what is left", s.dispatch(9, none), []int64{2, 4, 5})
	must.Get(s.Dispatch(t.Context(), wire.EventOutbox, 0, 1, func(_ context.Context, rows []wire.OutboxRow) []int64 {
		expect.That(t, s.now().Sub(rows[0].Created).Abs() <= time.Minute, "the row was inserted at %v", rows[0].Created)
		rows[0].Created = time.Time{}
		want(t, "row", rows, []wire.OutboxRow{{ID: 2, OrderID: "o2", Payload: []byte(`{"n":2}`)}})
		return nil
	}))(t)
	s.dispatch(9, all)
	want(t, "what is left at the end", s.dispatch(9, all), nil)
}

func dispatchersShareTheRows(t *testing.T, s *shop) {
	s.migrated()
	for id := range 6 {
		s.event(id+1, 0)
	}
	first := s.dispatch(2, func(ids []int64) []int64 {
		want(t, "the second's rows", s.dispatch(3, all), []int64{3, 4, 5})
		want(t, "the third's rows", s.dispatch(3, none), []int64{6})
		return ids
	})
	want(t, "the first's rows", first, []int64{1, 2})
	want(t, "what is left", s.dispatch(9, all), []int64{6})
}

// The first deletes its rows while the second has the rows behind them.
func dispatchersDeleteNeighboringRows(t *testing.T, s *shop) {
	s.migrated()
	const n = 40
	for id := range 2 * n {
		s.event(id+1, 0)
	}
	read, release, ended := make(chan bool), make(chan bool), make(chan bool)
	first := s.dispatch(n, func(ids []int64) []int64 {
		go func() {
			defer close(ended)
			want(t, "rows of the second", len(s.dispatch(n, func(ids []int64) []int64 {
				close(read)
				<-release
				return ids
			})), n)
		}()
		<-read
		return ids
	})
	want(t, "rows of the first, which ended while the second had its rows", len(first), n)
	want(t, "rows that are left", s.count("SELECT COUNT(*) FROM outbox_events"), n)
	close(release)
	<-ended
	want(t, "rows that are left at the end", s.count("SELECT COUNT(*) FROM outbox_events"), 0)
}

func noRowIsDispatchedTwice(t *testing.T, s *shop) {
	s.migrated()
	const n = 400
	for id := range n {
		s.event(id+1, 0)
	}
	var mu sync.Mutex
	var published []int64
	var dispatchers sync.WaitGroup
	for range 4 {
		dispatchers.Go(func() {
			for {
				rows, err := s.Dispatch(t.Context(), wire.EventOutbox, 0, 13, func(_ context.Context, rows []wire.OutboxRow) (done []int64) {
					for _, r := range rows {
						done = append(done, r.ID)
					}
					mu.Lock()
					defer mu.Unlock()
					published = append(published, done...)
					return done
				})
				expect.NoError(t, err)
				if rows == 0 || err != nil {
					return
				}
			}
		})
	}
	dispatchers.Wait()
	slices.Sort(published)
	want(t, "rows published", len(published), n)
	want(t, "different rows published", len(slices.Compact(published)), n)
	want(t, "rows left", s.count("SELECT COUNT(*) FROM outbox_events"), 0)
}

func rowsAreDispatchedAgain(t *testing.T, s *shop) {
	s.migrated()
	s.event(1, 0)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Dispatch(ctx, wire.EventOutbox, 0, 9, func(context.Context, []wire.OutboxRow) []int64 {
		cancel() // like a process that dies after publishing
		return []int64{1}
	})
	expect.That(t, errors.Is(err, orderclose.ErrUnavailable) && errors.Is(err, context.Canceled), "a cancelled dispatch returns %v", err)
	s.exec("UPDATE outbox_events SET created_at = created_at") // waits until the server has seen that the connection is gone
	want(t, "rows dispatched again", s.dispatch(9, all), []int64{1})
}

func lowerIDCommitsLater(t *testing.T, s *shop) {
	s.migrated()
	s.event(10, 0)
	want(t, "rows", s.dispatch(9, all), []int64{10})
	s.event(5, 0)
	want(t, "rows", s.dispatch(9, all), []int64{5})
}

// A publish that waits for Kafka must not delay a checkout or a close.
func dispatchBlocksNobody(t *testing.T, s *shop) {
	s.migrated("ink")
	s.event(1000, 0)
	s.order("a", -time.Minute, shopdb.Item{SKU: "ink", Quantity: 1})
	s.dispatch(9, func(ids []int64) []int64 {
		want(t, "verdict", verdicts(s.close("a")), []string{"a closed"})
		s.order("b", time.Minute, shopdb.Item{SKU: "ink", Quantity: 1})
		return ids
	})
	want(t, "orders of what is left", s.texts("SELECT order_id FROM outbox_events"), []string{"a"})
}

func backlogTellsTheOldest(t *testing.T, s *shop) {
	s.migrated()
	look := func() wire.OutboxBacklog {
		return must.Get(s.Backlog(t.Context(), wire.EventOutbox))(t)
	}
	waiting := func() []bool {
		return must.Get(s.Waiting(t.Context(), wire.ScheduleOutbox, wire.EventOutbox))(t)
	}
	want(t, "backlog of an empty outbox", look(), wire.OutboxBacklog{})
	want(t, "empty outboxes have rows", waiting(), []bool{false, false})
	s.event(7, time.Second)
	want(t, "outboxes with rows", waiting(), []bool{false, true})
	s.event(3, time.Hour)
	b := look()
	expect.That(t, b.Rows == 2 && b.Oldest >= time.Hour && b.Oldest <= time.Hour+time.Minute,
		"backlog is %+v, want 2 rows, the row of the lowest id an hour old", b)
}

func dropsOldRows(t *testing.T, s *shop) {
	s.migrated()
	drop := func() int64 {
		return must.Get(s.DropOutbox(t.Context(), wire.EventOutbox, time.Hour))(t)
	}
	want(t, "dropped of an empty outbox", drop(), 0)
	s.event(1, 2*time.Hour)
	s.event(2, time.Minute)
	s.event(3, 61*time.Minute)
	want(t, "dropped", drop(), 2)
	want(t, "left", s.texts("SELECT order_id FROM outbox_events"), []string{"o2"})
	expect.That(t, expect.Err(s.DropOutbox(t.Context(), "orders", time.Hour)) != nil, "an unknown outbox is emptied")
}

func unknownOutbox(t *testing.T, s *shop) {
	s.migrated()
	for _, box := range []wire.Outbox{"", "orders", "events;"} {
		_, err := s.Dispatch(t.Context(), box, 0, 1, nil)
		expect.That(t, err != nil, "outbox %q is dispatched", box)
		expect.That(t, expect.Err(s.Backlog(t.Context(), box)) != nil, "outbox %q has a backlog", box)
		expect.That(t, expect.Err(s.Waiting(t.Context(), box)) != nil, "outbox %q is looked at", box)
	}
}

// schedules returns a schedule outbox on the shop's database.
func (s *shop) schedules() *producer.Outbox {
	s.Helper()
	now := s.now() // read once: a transaction may hold the only connection
	x := must.Get(producer.NewOutbox(producer.OutboxOptions{Dialect: producer.Dialect(s.Dialect()), Now: func() time.Time { return now }}))(s)
	return x
}

func addedWithItsTransaction(t *testing.T, s *shop) {
	s.migrated("ink")
	x, undone := s.schedules(), errors.New("undone")
	for _, c := range []struct {
		id  string
		end error
	}{{"kept", nil}, {"undone", undone}} {
		now := s.now()
		o := orderclose.Order{ID: c.id, Category: "书", CreatedAt: now, Due: now.Add(time.Hour), Attributes: map[string]any{"note": `it's "4" \ 😀`}}
		err := s.Checkout(t.Context(), func(tx *shopdb.Tx) error {
			at, err := producer.Dialect(s.Dialect()).Now(t.Context(), orderclose.SQL(tx.SQL()))
			expect.That(t, err == nil && at.Sub(now).Abs() <= time.Minute, "the database's clock shows %v, %v", at, err)
			return errors.Join(tx.CreateOrder(o, []shopdb.Item{{SKU: "ink", Quantity: 1}}), x.Add(t.Context(), orderclose.SQL(tx.SQL()), o), c.end)
		})
		expect.That(t, errors.Is(err, c.end), "%s: %v", c.id, err)
		if c.end != nil {
			continue
		}
		direct := must.Get(wire.Record{Order: o, Release: o.Due}.Encode())(t)
		n := must.Get(s.Dispatch(t.Context(), wire.ScheduleOutbox, 0, 9, func(_ context.Context, rows []wire.OutboxRow) []int64 {
			m, _, err := rows[0].Schedule()
			s.must(err)
			want(t, "record", m, direct)
			return nil
		}))(t)
		want(t, "rows", n, 1)
	}
	want(t, "orders", s.texts("SELECT id FROM orders"), []string{"kept"})
	want(t, "orders to be scheduled", s.texts("SELECT order_id FROM outbox_schedules"), []string{"kept"})
	b := must.Get(s.Backlog(t.Context(), wire.ScheduleOutbox))(t)
	expect.That(t, b.Rows == 1 && b.Oldest <= time.Minute, "backlog is %+v", b)
	history := must.Get(s.OrderHistory(t.Context(), "kept"))(t)
	if len(history.PendingSchedules) != 1 || history.PendingSchedules[0].At.Before(history.At.Add(-time.Minute)) ||
		history.PendingSchedules[0].At.After(history.At) {
		t.Errorf("its history has %+v, at %v", history.PendingSchedules, history.At)
	}
}
