package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// codeCauses are the causes that the code of an error of a server tells. Other codes are RefusedByServer.
var codeCauses = map[orderclose.FailureCause]string{
	orderclose.NumberOutOfRange: "1264 1690 22003",
	orderclose.ValueNull:        "1048 23502",
	orderclose.RefusedByTrigger: "1644 P0001",
}

// because returns an error with a cause, as orderclose.Outcome.Why reads it.
func because(cause orderclose.FailureCause, format string, args ...any) error {
	return fmt.Errorf(string(cause)+": "+format, args...)
}

// withCause returns the error of a close of one order with its cause, by a look at the rows or else by the server's code. An error
// that is no order's fault, or has a cause, stays as it is.
func (s *Store) withCause(ctx context.Context, r orderclose.CloseRequest, err error) error {
	known, _ := orderclose.Outcome{Verdict: orderclose.Failed, Err: err}.Why()
	if known != orderclose.Unexplained && known != orderclose.NoAnswer || ctx.Err() != nil || ctx.Value(withoutKey{}) != nil ||
		errors.Is(err, orderclose.ErrNoOrderAtFault) || errors.Is(err, orderclose.ErrContended) {
		return err
	}
	if why := s.rowCause(ctx, r, err); why != nil {
		return why
	}
	for cause, codes := range codeCauses {
		if hasCode(err, codes) {
			return because(cause, "%w", err)
		}
	}
	if errorCode(err) != "" && !hasCode(err, slowCodes) {
		return because(orderclose.RefusedByServer, "%w", err)
	}
	return err
}

// rowCause looks for the cause in the rows of an order. It locks nothing. err is the error of the close; nil: none was tried.
func (s *Store) rowCause(ctx context.Context, r orderclose.CloseRequest, err error) (why error) {
	c, failed := s.readForClose(ctx, "", []orderclose.CloseRequest{r})
	if failed != nil {
		return nil
	}
	o, t, id := c.outcome(r.OrderID), c.open[r.OrderID], []string{r.OrderID}
	if o.Verdict != orderclose.Closed {
		return o.Err
	}
	failed = eachReceipt(c.tx, id, func(_ string, r *ReceiptRow) {
		why = because(orderclose.ClosedBefore, "order %q has a receipt: the path %s closed it at %s. It is not closed again, so that its stock comes back once: "+
			"give an order that is opened again a new id", o.OrderID, r.Path, r.ClosedAt.Format(time.RFC3339))
	})
	if why != nil || failed != nil || t.lines == "" {
		return why
	}
	all, unreadable, failed := s.readLines(c.tx, t.lines, id)
	moved := s.newMoves()
	for i := range all {
		if failed = cmp.Or(failed, unreadable[r.OrderID]); failed == nil {
			all[i], failed = s.ownLines(c.tx, t, id, all[i])
		}
		for _, l := range all[i] {
			failed = cmp.Or(failed, negative(l))
			s.add(moved, i, l)
		}
	}
	if failed != nil && strings.HasPrefix(failed.Error(), string(orderclose.LinesWrong)) {
		return failed
	}
	for i, stock := range s.q.m.Stock {
		if failed == nil && why == nil {
			why = s.stockCause(c.tx, stock, moved[i], hasCode(err, codeCauses[orderclose.NumberOutOfRange]))
		}
	}
	return why
}

// negative returns the error of a line with a quantity below zero; nil: it has none.
func negative(l line) error {
	if l.quantity >= 0 {
		return nil
	}
	return because(orderclose.LinesWrong, "order %q holds %d of SKU %q: fix its lines", l.order, l.quantity, l.sku)
}

// stockCause returns why quantities cannot return to a table of stock; nil: they can. full says that a number did not fit into its
// column: all rows have the same columns, so it is the row with the largest sum.
func (s *Store) stockCause(tx *gorm.DB, stock *mapping.Stock, moved map[string]int64, full bool) (why error) {
	spelt, err := s.spellings(tx, stock, slices.Sorted(maps.Keys(moved)))
	sums, largest := map[string]int64{}, 0.0
	for sku, quantity := range moved {
		sums[cmp.Or(spelt[sku], sku)] += quantity
	}
	is, _ := stockKey(stock)
	query := "SELECT " + orElse(stock.Available, "0") + ", " + orElse(stock.Reserved, "0") +
		" FROM " + mapping.Quote(stock.Table) + s.dialect.hint(stock.SKU.Index) + " WHERE " + is
	for _, sku := range slices.Sorted(maps.Keys(sums)) {
		var rows [][2]sql.NullInt64
		if err == nil {
			rows, err = readAll(tx, query, stockArgs(stock, sku), func(r *[2]sql.NullInt64) []any { return []any{&r[0], &r[1]} })
		}
		switch in := fmt.Sprintf("SKU %q in table %s", sku, stock.Table); {
		case err != nil:
			return nil
		case len(rows) == 0:
			return because(orderclose.StockRowMissing, "SKU %q has no row in table %s", sku, stock.Table)
		case !rows[0][0].Valid:
			return because(orderclose.ValueNull, "%s of %s is NULL", stock.Available, in)
		case !rows[0][1].Valid:
			return because(orderclose.ValueNull, "%s of %s is NULL", stock.Reserved, in)
		case stock.Reserved != "" && rows[0][1].Int64 < sums[sku]:
			return because(orderclose.ReservedTooLow, "%s of %s is %d, and the order holds %d", stock.Reserved, in, rows[0][1].Int64, sums[sku])
		case full && stock.Available != "" && float64(rows[0][0].Int64)+float64(sums[sku]) > largest:
			largest = float64(rows[0][0].Int64) + float64(sums[sku])
			why = because(orderclose.NumberOutOfRange, "%s of %s is %d, and %d more do not fit into the column", stock.Available, in, rows[0][0].Int64, sums[sku])
		}
	}
	return why
}

// WhyOpen returns Failed or Contended, with the cause in Err, if an unpaid order that is due cannot be closed; otherwise it returns no verdict. It
// looks at the rows. With try, if they show no cause, it closes the order as TryClose does, and rolls back. The error wraps ErrNoTrial
// if that cannot be tried, or orderclose.ErrUnavailable if the database failed.
func (s *Store) WhyOpen(ctx context.Context, r orderclose.CloseRequest, try bool) (o orderclose.Outcome, err error) {
	if o = (orderclose.Outcome{OrderID: r.OrderID, Err: s.rowCause(ctx, r, nil)}); o.Err != nil {
		o.Verdict = orderclose.Failed
	}
	if o.Err != nil || !try {
		return o, nil
	}
	if s.dialect.effects == nil {
		return o, ErrNoTrial
	}
	if err := s.rollsBack(ctx); err != nil {
		return o, err
	}
	t, err := s.tryOrders(ctx, []orderclose.Order{{ID: r.OrderID, CreatedAt: r.CreatedAt, Due: r.Due}})
	if t != nil && t.closing != nil && t.closing.contended[r.OrderID] {
		return t.closing.outcome(r.OrderID), nil
	}
	if err != nil {
		o.Err = s.trialError(ctx, t, err)
		if _, refused := errors.AsType[*MappingError](o.Err); !refused {
			return orderclose.Outcome{}, o.Err
		}
		o.Verdict, o.Err = orderclose.Failed, s.withCause(ctx, r, err)
	}
	return o, nil
}

// notFound is the error of an order without a row. A sweep may find ids that orderclose refuses.
func notFound(id string) error {
	if err := orderclose.ValidateID(id); err != nil {
		return because(orderclose.RowNotFound, "orderclose closes no order with this id: %w", err)
	}
	return because(orderclose.RowNotFound, "the database has no order %q", id)
}
