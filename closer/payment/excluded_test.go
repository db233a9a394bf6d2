package payment_test

import (
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/sqlite"
)

// The mapping excludes orders of other tenants: their payments are not cancelled.
func TestCancel_LeavesThePaymentsOfExcludedOrdersAlone(t *testing.T) {
	db, err := sqlite.OpenWith(sqlite.Memory, sqlite.Options{Orders: &mapping.Mapping{
		Orders: "t_order",
		ID:     mapping.Key{Column: "no"},
		Status: mapping.Status{Column: "status", From: mapping.IntValue(0), To: mapping.IntValue(2), Paid: []mapping.Value{mapping.IntValue(1)}},
		Due:    mapping.TimeColumn{Column: "due", Type: mapping.UnixMillis},
		Where:  []mapping.ColumnValue{{Column: "tenant", Value: mapping.TextValue("ours")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.DB().ExecContext(t.Context(), "CREATE TABLE t_order (no TEXT PRIMARY KEY, status INTEGER, due INTEGER, tenant TEXT)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	due := time.Now().Add(-time.Minute).UnixMilli()
	if _, err := db.DB().ExecContext(t.Context(), "INSERT INTO t_order VALUES ('a', 0, ?, 'ours'), ('b', 0, ?, 'theirs')", due, due); err != nil {
		t.Fatal(err)
	}
	c := newCashier()
	checked, err := payment.New(payment.Options{Store: db, Provider: c})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{Store: db, asking: checked}
	if got := s.close(t, "a", "b"); !slices.Equal(got, []string{"closed", "excluded"}) {
		t.Errorf("verdicts %v", got)
	}
	if !c.cancelled["a"] || c.cancelled["b"] || !c.pay("b") {
		t.Errorf("the payments of %v were cancelled, want those of a alone", c.cancelled)
	}
}
