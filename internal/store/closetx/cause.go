package closetx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// codeCauses are the causes that the code of an error of a server tells. Other codes are RefusedByServer.
var codeCauses = map[orderclose.FailureCause]string{
	orderclose.NumberOutOfRange: "1264 1690 22003",
	orderclose.ValueNull:        "1048 23502",
	orderclose.RefusedByTrigger: "1644 P0001",
}

// because returns an error with a cause.
func because(cause orderclose.FailureCause, format string, args ...any) error {
	return &bisect.Fault{Cause: cause, Err: fmt.Errorf(format, args...)}
}

// withCause returns the error of a close of one order with its cause, by a look at the rows or else by the server's code. An error
// that is no order's fault, or has a cause, stays as it is.
func (s *Closer) withCause(ctx context.Context, r orderclose.CloseRequest, err error) error {
	if bisect.CauseOf(err) != "" || ctx.Err() != nil ||
		errors.Is(err, orderclose.ErrNoOrderAtFault) || errors.Is(err, orderclose.ErrContended) {
		return err
	}
	if why := s.rowCause(ctx, r, err); why != nil {
		return why
	}
	for cause, codes := range codeCauses {
		if db.HasCode(err, codes) {
			return because(cause, "%w", err)
		}
	}
	if db.ErrorCode(err) != "" && !db.HasCode(err, db.SlowCodes) {
		return because(orderclose.RefusedByServer, "%w", err)
	}
	return err
}

// rowCause looks for the cause in the rows of an order. err is the error of the close; nil: none was tried, and rows of stock that nobody
// locks are locked for a moment if this user may.
func (s *Closer) rowCause(ctx context.Context, r orderclose.CloseRequest, err error) error {
	f, failed := s.refused(ctx, "", []orderclose.CloseRequest{r})
	switch {
	case bisect.CauseOf(failed) == orderclose.LinesWrong:
		return failed
	case failed != nil:
		return nil
	}
	if o := f.read.Outcome(r.OrderID); o.Verdict != orderclose.Closed {
		return o.Err
	}
	if why := f.why[r.OrderID]; why != nil {
		return why
	}
	for i, moved := range f.holds[r.OrderID] {
		stock, skus := s.Q.M.Stock[i], slices.Sorted(maps.Keys(moved))
		if db.HasCode(err, codeCauses[orderclose.NumberOutOfRange]) {
			if why := tooMany(stock, skus, moved, f.stock[i]); why != nil {
				return why
			}
		}
		if err == nil {
			locked, _ := s.lockStock(f.read.Tx, stock, skus)
			for _, sku := range slices.Sorted(maps.Keys(locked)) {
				return because(orderclose.Locked, "another transaction locks SKU %q in table %s", sku, stock.Table)
			}
		}
	}
	return nil
}

// tooMany returns the error of a number that did not fit into its column: all rows have the same columns, so it is the row with the
// largest sum. nil: the column is none of these.
func tooMany(stock *mapping.Stock, skus []string, moved map[string]int64, rows map[string]quantities) (why error) {
	largest := 0.0
	for _, sku := range skus {
		available := rows[sku].available.Int64
		if sum := float64(available) + float64(moved[sku]); stock.Available != "" && sum > largest {
			largest = sum
			why = because(orderclose.NumberOutOfRange, "%s of SKU %q in table %s is %d, and %d more do not fit into the column", stock.Available, sku,
				stock.Table, available, moved[sku])
		}
	}
	return why
}

// maxPieces is the largest quantity of a line, and of a SKU in an order. The sum of eight million of them fits in 64 bits.
const maxPieces = 1 << 40

// outOfRange returns the error of a sum of lines below zero or above maxPieces; nil: it is neither.
func outOfRange(l line) error {
	if l.Quantity >= 0 && l.Quantity <= maxPieces {
		return nil
	}
	return because(orderclose.LinesWrong, "order %q holds %d of SKU %q: fix its lines", l.Order, l.Quantity, l.SKU)
}

// closedBefore returns the error of an unpaid order that has a receipt.
func closedBefore(id string, r *ReceiptRow) error {
	return because(orderclose.ClosedBefore, "order %q has a receipt: the path %s closed it at %s. It is not closed again, so that its stock comes back once: "+
		"give an order that is opened again a new id", id, r.Path, r.ClosedAt.Format(time.RFC3339))
}

// quantities are those of a row of a table of stock. A column that the mapping does not name is 0.
type quantities struct {
	sku                 string // as the stock spells it
	available, reserved sql.NullInt64
}

// readQuantities returns the rows of SKUs in a table of stock, by the spelling of the lines.
func (s *Closer) readQuantities(tx *gorm.DB, stock *mapping.Stock, skus []string) (map[string]quantities, error) {
	all := map[string]quantities{}
	for part := range slices.Chunk(skus, db.MaxIn) {
		rows, err := s.stockRows(tx, stock, part, "")
		if err != nil {
			return nil, err
		}
		left := slices.DeleteFunc(slices.Clone(part), func(sku string) bool {
			r, same := rows[sku]
			if same {
				all[sku] = r
			}
			return same
		})
		if len(left) > 0 && len(left) < len(part) {
			rows, err = s.stockRows(tx, stock, left, "")
		}
		for i := 0; i < len(left) && len(rows) > 0 && err == nil; i++ { // the lines spell some otherwise
			var row map[string]quantities
			row, err = s.stockRows(tx, stock, left[i:i+1], "")
			for _, r := range row {
				all[left[i]] = r
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// oneRow returns the error of an order that holds two SKUs which are one row of the stock; nil: it holds none. An UPDATE changes the row once.
func oneRow(stock *mapping.Stock, moved map[string]int64, rows map[string]quantities) error {
	written := map[string]string{}
	for _, sku := range slices.Sorted(maps.Keys(moved)) {
		r, exists := rows[sku]
		if other := written[r.sku]; exists && other != "" {
			return because(orderclose.LinesWrong, "SKUs %q and %q are one row of table %s: spell them the same way", other, sku, stock.Table)
		}
		written[r.sku] = sku
	}
	return nil
}

// refuses returns why a quantity cannot return to the row of a SKU; nil: it can. exists says that there is such a row.
func (r quantities) refuses(stock *mapping.Stock, sku string, exists bool, quantity int64) error {
	switch in := fmt.Sprintf("SKU %q in table %s", sku, stock.Table); {
	case !exists:
		return because(orderclose.StockRowMissing, "SKU %q has no row in table %s", sku, stock.Table)
	case !r.available.Valid:
		return because(orderclose.ValueNull, "%s of %s is NULL", stock.Available, in)
	case !r.reserved.Valid:
		return because(orderclose.ValueNull, "%s of %s is NULL", stock.Reserved, in)
	case stock.Reserved != "" && r.reserved.Int64 < quantity:
		return because(orderclose.ReservedTooLow, "%s of %s is %d, and the order holds %d", stock.Reserved, in, r.reserved.Int64, quantity)
	}
	return nil
}

// WhyOpen returns Failed or Contended, with the cause in Err, if an unpaid order that is due cannot be closed; otherwise it returns no verdict. It
// looks at the rows. With try, if they show no cause, it closes the order as TryClose does, and rolls back. The error wraps ErrNoTrial
// if that cannot be tried, or orderclose.ErrUnavailable if the database failed.
func (s *Closer) WhyOpen(ctx context.Context, r orderclose.CloseRequest, try bool) (o orderclose.Outcome, err error) {
	if o = (orderclose.Outcome{OrderID: r.OrderID, Err: s.rowCause(ctx, r, nil)}); o.Err != nil {
		o.Verdict, o.Cause = orderclose.Failed, bisect.CauseOf(o.Err)
	}
	if o.Err != nil || !try {
		return o, nil
	}
	if !s.Dialect.TellsTables {
		return o, ErrNoTrial
	}
	t, err := s.tryOrders(ctx, []orderclose.Order{{ID: r.OrderID, CreatedAt: r.CreatedAt, Due: r.Due}})
	if t != nil && t.closing != nil && t.closing.Contended[r.OrderID] != nil {
		return t.closing.Outcome(r.OrderID), nil
	}
	if err != nil {
		o.Err = s.trialError(ctx, t, err)
		if _, refused := errors.AsType[*db.MappingError](o.Err); !refused {
			return orderclose.Outcome{}, o.Err
		}
		o.Verdict, o.Err = orderclose.Failed, s.withCause(ctx, r, err)
		o.Cause = bisect.CauseOf(o.Err)
	}
	return o, nil
}
