package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A trial makes each change of a close, whether the order is due or not, and leaves nothing of it.
func triedMapped(t *testing.T, s *mapped) {
	s.begin()
	if s.lacks(trials) {
		_, err := s.TryClose(t.Context())
		expect.That(t, errors.Is(err, store.ErrNoTrial), "error %v, want that no close was tried", err)
		return
	}
	trial := must.Get(s.tryClose())(t)
	want(t, "a trial without an unpaid order", trial, store.Trial{})
	overdue, waiting := s.an(1, -time.Minute), s.an(2, time.Hour)
	s.put(s.Paid, s.an(3, -time.Minute))
	s.put(s.Mapping.Status.From[0], overdue)
	tables := []string{"receipts", "stock_ledger", "outbox_events"}
	for _, o := range []string{overdue.ID, waiting.ID} {
		if o == waiting.ID {
			s.put(s.Mapping.Status.From[0], waiting)
		}
		trial := must.Get(s.tryClose())(t)
		want(t, "the order that is tried", trial.OrderID, o)
		said := strings.Join(trial.Changes, "\n")
		changes := []string{fmt.Sprintf("%s %s -> %s", s.Mapping.Status.Column, s.Mapping.Status.From[0].Text, s.Mapping.Status.To.Text)}
		if m := s.Mapping.Stock; len(m) > 0 && m[0].Available != "" {
			stock := m[0]
			changes = append(changes, stock.Table+" "+s.SKUs[1]+": "+stock.Available+" 900 -> 903")
		}
		for i := range s.Mapping.OnClose {
			changes = append(changes, fmt.Sprintf("on_close[%d]: ", i))
		}
		for _, c := range changes {
			expect.That(t, strings.Contains(said, c), "the trial of %s says nothing of %q:\n%s", o, c, said)
		}
		for _, table := range tables {
			want(t, "rows of "+table, s.count("SELECT COUNT(*) FROM "+table), 0)
		}
	}
	open := s.count("SELECT COUNT(*) FROM "+mapping.Quote(s.table(s.Mapping.Orders, overdue.CreatedAt))+
		" WHERE "+mapping.Quote(s.Mapping.Status.Column)+" = ?", s.Mapping.Status.From[0].Arg())
	want(t, "unpaid orders", open, 2)
	want(t, "verdict on the order after its trial", verdicts(s.closing(overdue)), []string{overdue.ID + " closed"})
	if len(s.Mapping.Stock) == 0 {
		return
	}
	s.exec("DELETE FROM " + mapping.Quote(s.Mapping.Stock[0].Table))
	_, err := s.tryClose()
	wrong, ok := errors.AsType[*store.MappingError](err)
	expect.That(t, ok && slices.ContainsFunc(wrong.Problems, func(p mapping.Problem) bool { return p.Path == "stock" }),
		"without a row of the stock: %v", err)
}

// tryClose tries a close, and again if the server was too busy for it, as the error says.
func (s *shop) tryClose() (trial store.Trial, err error) {
	for range 30 {
		trial, err = s.TryClose(s.Context())
		if err == nil || !strings.Contains(err.Error(), "it took longer than") {
			break
		}
	}
	return trial, err
}

// A trial waits a second for a lock, and leaves out orders that others lock.
func triedLocked(t *testing.T, s *shop) {
	s.needs(trials)
	s.migrated("ink")
	s.order("a", time.Hour, shopdb.Item{SKU: "ink", Quantity: 1})
	for _, lock := range []string{"SELECT id FROM orders WHERE id = 'a' FOR UPDATE", "UPDATE stock SET available = available + 1"} {
		tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
		must.Get(tx.ExecContext(t.Context(), lock))(t)
		expect.Is(t, expect.Err(s.TryClose(t.Context())), store.ErrNoTrial, "while %q", lock)
		s.must(tx.Rollback())
	}
	Await(t, "the server releases the locks of the trial before", func() (string, bool) {
		trial, err := s.TryClose(t.Context())
		if errors.Is(err, store.ErrNoTrial) {
			return err.Error(), false
		}
		s.must(err)
		want(t, "the order that is tried", trial.OrderID, "a")
		return "", true
	})
}
