package db

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

const (
	// oldAge is how long an order has been due that a shop has left open on purpose, as far as anybody knows: a day is longer than a shop's own
	// job rests.
	oldAge = 24 * time.Hour
	// oldFew is how many old orders are closed as all others: a job has missed them.
	oldFew = 20
	// oldMost is how many old orders OldOrders reads.
	oldMost = 100
)

// NotBefore returns the earliest due time of an order that is closed, by the mapping and KeepOld. The zero time: any.
func (q *statements) NotBefore() time.Time {
	if old := q.old.Load(); old != nil && old.After(q.M.NotBefore) {
		return *old
	}
	return q.M.NotBefore
}

// Excludes reports whether the mapping excludes orders.
func (q *statements) Excludes() bool { return q.Where.SQL != "" || !q.NotBefore().IsZero() }

// KeepOld decides once for a database whether the old orders of the shop's own tables stay open: a shop that has left more than a few open for
// more than a day may have a reason, and the first sweep must not cancel them all. A mapping that accepts mapping.OldOrders closes them.
func (s *Handle) KeepOld(ctx context.Context) error {
	old, err := s.readOld(ctx)
	if err != nil || old != nil || !s.Mapped || s.OwnStore() {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	before := now.Add(-oldAge)
	orders, err := s.DueBetween(ctx, time.Time{}, before, orderclose.Order{}, oldFew+1)
	s.Q.Tables.Forget()
	if HasCode(err, missingCodes) || err != nil && !s.Dialect.TellsTables {
		return nil // the shop has no tables yet
	}
	millis := int64(0)
	if len(orders) > oldFew {
		millis = before.UnixMilli()
	}
	if err == nil {
		err = s.Transact(ctx, func(tx *gorm.DB) error {
			return tx.Exec("UPDATE "+VersionTable+" SET not_before = ? WHERE owner IS NOT NULL AND not_before IS NULL", millis).Error
		})
	}
	return s.FailedTo(ctx, err, "write whether old orders stay open")
}

// NotBeforeSQL writes what KeepOld writes into a database that has old orders.
func (d Dialect) NotBeforeSQL() string {
	return fmt.Sprintf("%s - %d", d.Literal(d.Millis()), oldAge.Milliseconds())
}

// learnOld reads once what KeepOld has decided.
func (s *Handle) learnOld(ctx context.Context) error {
	if !s.Mapped || s.Q.old.Load() != nil || slices.Contains(s.Q.M.Accept, mapping.OldOrders) {
		return nil
	}
	old, err := s.readOld(ctx)
	if old != nil {
		s.Q.old.Store(old)
	}
	return err
}

// readOld returns nil if KeepOld has decided nothing, and the zero time if no order stays open.
func (s *Handle) readOld(ctx context.Context) (*time.Time, error) {
	var has int64
	tx := s.Gorm.WithContext(ctx)
	if err := tx.Raw(s.Dialect.HasTable, VersionTable).Scan(&has).Error; err != nil || has == 0 {
		return nil, err
	}
	all, err := RowsOf(Own(tx), "SELECT not_before FROM "+VersionTable+" WHERE not_before IS NOT NULL ORDER BY id LIMIT 1", nil,
		func(millis *int64) []any { return []any{millis} })
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if all[0] == 0 {
		return &time.Time{}, nil
	}
	old := time.UnixMilli(all[0]).UTC()
	return &old, nil
}

// OldOrders returns up to 100 unpaid orders that stay open by KeepOld, the oldest first. The error wraps orderclose.ErrUnavailable if the
// database failed.
func (s *Handle) OldOrders(ctx context.Context) (orders []orderclose.Order, err error) {
	in, err := s.AllTables(ctx)
	old := s.Q.old.Load()
	if err != nil || len(in) == 0 || old == nil || !old.After(s.Q.M.NotBefore) {
		return nil, err
	}
	p := s.Q.OpenPage(old.Add(-s.Q.Due.Step()), orderclose.Order{}, oldMost)
	p.after.Due = s.Q.M.NotBefore
	err = s.ReadPage(s.Gorm.WithContext(ctx), in, p, func(o orderclose.Order, _ any) { orders = append(orders, o) })
	return orders, s.FailedTo(ctx, err, "read old orders")
}
