package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/wire"
)

// scheduled returns the orders in the rows of outbox_schedules, as the dispatcher reads them, and deletes the rows.
func (s *shop) scheduled() (orders []orderclose.Order) {
	s.Helper()
	_, err := s.Dispatch(s.Context(), wire.ScheduleOutbox, 0, 100, func(_ context.Context, rows []wire.OutboxRow) (ids []int64) {
		for _, row := range rows {
			m, due, err := row.Schedule()
			s.must(err)
			r, err := m.Decode()
			s.must(err)
			want(s, "due time of the record", due, r.Order.Due)
			r.Order.Due, r.Order.CreatedAt = r.Order.Due.UTC(), r.Order.CreatedAt.UTC()
			orders, ids = append(orders, r.Order), append(ids, row.ID)
		}
		return ids
	})
	s.must(err)
	return orders
}

// trigger runs the statement that creates a trigger of the table of now, or that drops it.
func (s *mapped) trigger(o store.TriggerOptions) {
	s.Helper()
	o.Table = s.table(s.Mapping.Orders, s.now())
	if s.Dialect() == store.Postgres {
		o.Database = s.texts("SELECT current_schema()")[0]
	} else {
		o.Database = s.texts("SELECT DATABASE()")[0]
	}
	statement, err := store.Trigger(s.Dialect(), s.Mapping, o)
	s.must(err)
	s.exec(statement)
}

// The statements are the shop's own: nothing but the trigger writes rows.
func mappedTrigger(t *testing.T, s *mapped) {
	s.needs(triggers)
	s.begin()
	s.trigger(store.TriggerOptions{})
	hints, err := s.MappingHints(t.Context())
	s.must(err)
	if text := strings.Join(hints, "\n"); strings.Contains(text, "trigger") {
		t.Errorf("a hint on a trigger that no close fires: %s", text)
	}
	s.today = s.now() // all orders are in the table with the trigger
	an := func(n int, in time.Duration) orderclose.Order {
		o := s.an(n, in)
		o.CreatedAt = s.today.Truncate(time.Second)
		if s.Mapping.ByRule {
			o.CreatedAt = o.Due.Add(-s.DueAt)
		}
		return o
	}
	single := an(1, time.Hour)
	s.put(s.Mapping.Status.From, single)
	s.wantScheduled("one row", single)
	overdue := an(2, -time.Hour)
	s.put(s.Mapping.Status.From, overdue)
	s.wantScheduled("an order that is overdue", overdue)
	far := an(4, 4000*24*time.Hour)
	without := an(5, 0)
	without.Due = time.Time{}
	if s.put(s.Mapping.Status.From, without); !s.Mapping.ByRule { // by rule, such an order is created in ten years
		s.put(s.Mapping.Status.From, far)
	}
	s.put(s.Paid, an(3, time.Hour))
	s.wantScheduled("a paid order, one without a due time, and one that is due in more than ten years")

	table, columns, due := mapping.Quote(s.table(s.Mapping.Orders, s.today)), []string{s.Mapping.ID.Column, s.Mapping.Status.Column}, s.Mapping.Due.Column
	if s.DueFrom != "" {
		due = s.DueFrom
	}
	columns = append(columns, due)
	if s.Mapping.Created != nil && !s.Mapping.ByRule {
		columns = append(columns, s.Mapping.Created.Column)
	}
	if s.Mapping.Category != "" {
		columns = append(columns, s.Mapping.Category)
	}
	list := "`" + strings.Join(columns, "`, `") + "`"
	args := []any{s.ID(10), s.ID(11)}
	s.exec("INSERT INTO "+table+" ("+list+") SELECT "+s.of("?")+", "+list[strings.Index(list, ",")+2:]+" FROM "+table+" WHERE `"+columns[0]+"` = "+s.of("?"),
		args[0], s.ID(1))
	first, second := single, single
	first.ID, second.ID = s.ID(10), s.ID(11)
	s.wantScheduled("INSERT … SELECT", first)
	another := single
	another.ID = s.ID(12)
	rows := "(" + strings.Repeat("?, ", len(columns)-1) + "?)"
	args = append(s.values(second, len(columns)), s.values(another, len(columns))...)
	s.exec("INSERT INTO "+table+" ("+list+") VALUES "+rows+", "+rows, args...)
	s.wantScheduled("two rows", second, another)

	tx, err := s.DB().BeginTx(t.Context(), nil)
	s.must(err)
	last := single
	last.ID = s.ID(13)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO "+table+" ("+list+") VALUES "+rows, s.values(last, len(columns))...)
	s.must(err)
	s.must(tx.Rollback())
	s.wantScheduled("a rollback")
	s.trigger(store.TriggerOptions{Drop: true})
	s.put(s.Mapping.Status.From, last)
	s.wantScheduled("without the trigger")
	s.triggerOnUpdate(table, an(14, time.Hour))
}

// triggerOnUpdate is for a shop whose cart becomes an order by an UPDATE. No cart has the status Paid, but the trigger
// only compares it with Status.From.
func (s *mapped) triggerOnUpdate(table string, cart orderclose.Order) {
	s.Helper()
	s.trigger(store.TriggerOptions{OnUpdate: true})
	hints, err := s.MappingHints(s.Context())
	s.must(err)
	if text := strings.Join(hints, "\n"); strings.Contains(text, "trigger") {
		s.Errorf("a hint on a trigger of orderclose: %s", text)
	}
	s.put(s.Paid, cart)
	s.wantScheduled("a cart")
	update := "UPDATE " + table + " SET `" + s.Mapping.Status.Column + "` = ? WHERE `" + s.Mapping.ID.Column + "` = " + s.of("?")
	s.exec(update, s.Mapping.Status.From.Arg(), cart.ID)
	s.wantScheduled("a cart that becomes an order", cart)
	s.exec(update, s.Mapping.Status.From.Arg(), cart.ID)
	s.wantScheduled("an UPDATE that changes nothing")
	s.exec(update, s.Paid.Arg(), cart.ID)
	s.wantScheduled("a payment")
	s.trigger(store.TriggerOptions{OnUpdate: true, Drop: true})
}

// of returns a placeholder for an id in a list of expressions, whose type PostgreSQL does not infer.
func (s *mapped) of(placeholder string) string {
	if kind := s.Mapping.ID.Type; s.Dialect() == store.Postgres && kind != mapping.Text && kind != "" {
		return "CAST(" + placeholder + " AS " + map[mapping.KeyType]string{mapping.Integer: "bigint", mapping.UUID: "uuid"}[kind] + ")"
	}
	return placeholder
}

// values returns the first n values of a row: id, status, due time, creation and category.
func (s *mapped) values(o orderclose.Order, n int) []any {
	all := []any{o.ID, s.Mapping.Status.From.Arg(), s.due.Arg(o.Due.Add(-s.DueAt))}
	if s.Mapping.Created != nil && !s.Mapping.ByRule {
		all = append(all, s.created.Arg(o.CreatedAt))
	}
	return append(all, o.Category)[:n]
}

// wantScheduled checks which orders the last statements scheduled.
func (s *mapped) wantScheduled(what string, orders ...orderclose.Order) {
	s.Helper()
	got := s.scheduled()
	if len(got) != len(orders) {
		s.Fatalf("%s: scheduled %+v, want %+v", what, got, orders)
	}
	for i, o := range orders {
		if s.Mapping.Category == "" {
			o.Category = ""
		}
		if o.Due, o.CreatedAt = o.Due.UTC(), o.CreatedAt.UTC(); s.Mapping.Created == nil {
			o.CreatedAt = got[i].CreatedAt
		}
		want(s, what, got[i], o)
	}
}
