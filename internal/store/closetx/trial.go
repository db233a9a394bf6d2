package closetx

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
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

const (
	// trialWithin bounds a trial, with all its waits for locks.
	trialWithin = 2 * time.Second
	// trialOrders is how many unpaid orders a trial looks at, until it finds one that nobody locks.
	trialOrders = 20
)

// ErrNoTrial says that TryClose could not try a close, and why.
var ErrNoTrial = errors.New("no close was tried")

// Trial is what a close would have changed.
type Trial struct {
	OrderID string   `json:"order_id,omitempty"` // empty: there is no unpaid order
	Changes []string `json:"changes"`            // in words, table by table
}

// TryClose closes one unpaid order that no other transaction locks, in a transaction that it rolls back. It runs the statements of a close, and takes the
// order for due. Values of AUTO_INCREMENT and of sequences are used up. The error is a *MappingError if the tables or their data do not let the order be
// closed, wraps ErrNoTrial if that could not be tried, or orderclose.ErrUnavailable if the database failed.
func (s *Closer) TryClose(ctx context.Context) (Trial, error) {
	if !s.Dialect.TellsTables {
		return Trial{}, fmt.Errorf("%w: on %s the transaction would lock the whole database", ErrNoTrial, s.Dialect.Name)
	}
	if err := s.CheckMapping(ctx); err != nil {
		return Trial{}, err
	}
	orders, err := s.ordersToTry(ctx)
	if err != nil || len(orders) == 0 {
		return Trial{}, err
	}
	t, err := s.tryOrders(ctx, orders)
	if err != nil {
		return Trial{}, s.trialError(ctx, t, err)
	}
	return t.Trial, nil
}

// tryOrders tries orders until one is closed. The trial is that of the last order.
func (s *Closer) tryOrders(ctx context.Context, orders []orderclose.Order) (t *trial, err error) {
	err = s.Gorm.WithContext(ctx).Connection(func(conn *gorm.DB) error {
		defer s.discard(conn)
		ctx, cancel := context.WithTimeout(ctx, trialWithin)
		defer cancel()
		for _, o := range orders {
			if t, err = s.try(ctx, conn, o); err != nil || t.done {
				return err
			}
		}
		return fmt.Errorf("%w: other transactions lock each unpaid order that was looked at; try again", ErrNoTrial)
	})
	return t, err
}

// ordersToTry returns unpaid orders: some that are not due yet, since nobody else closes those, then others.
func (s *Closer) ordersToTry(ctx context.Context) ([]orderclose.Order, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	waiting, err := s.DueBetween(ctx, now, s.Q.Latest(), orderclose.Order{}, trialOrders/2)
	if err != nil {
		return nil, err
	}
	overdue, err := s.Overdue(ctx, now, orderclose.Order{}, trialOrders-len(waiting))
	return append(waiting, overdue...), err
}

// trial is one attempt of TryClose.
type trial struct {
	Trial
	closing *closing
	done    bool // the order was unpaid and not locked, and all statements succeeded
}

// try closes an order and rolls back.
func (s *Closer) try(ctx context.Context, conn *gorm.DB, o orderclose.Order) (t *trial, err error) {
	t = &trial{Trial: Trial{OrderID: o.ID}}
	where, err := s.Candidates(ctx, []orderclose.CloseRequest{db.RequestOf(o)})
	if err != nil {
		return t, err
	}
	return t, s.undone(ctx, conn, func(tx *gorm.DB) error {
		t.closing = s.newClosing(tx, map[string]orderclose.CloseRequest{o.ID: {}}, where)
		t.closing.Locks, t.closing.path, t.closing.watched = SkipLocked, orderclose.PathPipeline, true
		return t.run(o)
	})
}

// run makes the changes of a close at the moment when the order is due, and notes them.
func (t *trial) run(o orderclose.Order) (err error) {
	c := t.closing
	if err := c.ReadClock(); err != nil {
		return err
	}
	if o.Due.After(c.Now) {
		c.Now = o.Due
	}
	if err := orderclose.ValidateID(o.ID); err != nil {
		return err
	}
	if err := c.LockOrders([]string{o.ID}); err != nil || len(c.won) == 0 {
		return err
	}
	before, err := c.look(o.ID)
	if err == nil {
		err = c.write()
	}
	if err != nil {
		return err
	}
	after, err := c.look(o.ID)
	if err != nil || len(after.rows) != len(before.rows) {
		return cmp.Or(err, errors.New("the close adds or removes rows of the order or of its stock"))
	}
	c.step = "stock"
	for i, stock := range before.stock { // settle has compared only what the UPDATE of the stock did
		if err := returnedTo(c.S.Q.M.Stock[i], stock, after.stock[i], before.moved[i]); err != nil {
			return err
		}
	}
	t.done, t.Changes = true, changes(before.rows, after.rows)
	if c.S.Q.M.Items != nil && before.pieces == 0 {
		t.Changes = append(t.Changes, "no line of the order has a quantity: no stock would come back")
	}
	for i, n := range c.onClosed {
		t.Changes = append(t.Changes, fmt.Sprintf("on_close[%d]: %d rows", i, n))
	}
	return nil
}

// row is a row of the shop, as text.
type row struct {
	name            string // table and key
	columns, values []string
}

// look is what a trial sees of an order that it closes.
type look struct {
	rows   []row                   // that of the order, and those of the stock of its lines
	stock  []map[string]quantities // the rows of each Mapping.Stock, by SKU as the lines spell it
	moved  moves                   // what the lines return
	pieces int64                   // the sum of the lines
}

func (c *closing) look(id string) (l look, err error) {
	q := c.S.Q
	for t := range c.won { // one
		key := mapping.Quote(q.M.ID.Column)
		l.rows, err = c.S.readRows(c.Tx, t.Name, q.M.ID.Read(q.M.ID.Column), key+" IN ?", []any{q.Args([]string{id})})
		if err != nil || t.Lines == "" {
			return l, err
		}
		lines, _, err := c.S.ReadLines(c.Tx, t.CountedLines, []string{id})
		l.moved = c.S.newMoves()
		for i, of := range lines {
			for _, line := range of {
				c.S.add(l.moved, i, line)
				if i == 0 {
					l.pieces += line.Quantity
				}
			}
		}
		for i, stock := range q.M.Stock {
			var rows []row
			quantities := map[string]quantities{}
			if skus := slices.Sorted(maps.Keys(l.moved[i])); err == nil && len(skus) > 0 {
				is, read, args := stockKeys(stock, skus)
				if rows, err = c.S.readRows(c.Tx, stock.Table, read[0], is, args); err == nil {
					quantities, err = c.S.readQuantities(c.Tx, stock, skus)
				}
			}
			l.rows, l.stock = append(l.rows, rows...), append(l.stock, quantities)
		}
		return l, err
	}
	return l, nil
}

// readRows reads the rows of a table that meet a condition, each with its key. NULL is the text -. A time of a column without a
// zone is written without one, as the column holds it.
func (s *Closer) readRows(tx *gorm.DB, table, key, condition string, args []any) (all []row, err error) {
	query := "SELECT " + key + ", t.* FROM " + mapping.Quote(table) + " AS t WHERE " + condition + " ORDER BY 1"
	err = db.EachRow(tx, query, args, func(rows *sql.Rows) error {
		types, err := rows.ColumnTypes()
		if err != nil {
			return err
		}
		columns, err := rows.Columns()
		r := row{columns: columns, values: make([]string, len(columns))}
		into := make([]any, len(columns))
		for i := range columns {
			into[i] = db.Nullable(&r.values[i])
		}
		if err == nil {
			err = rows.Scan(into...)
			for i, t := range types {
				if t.DatabaseTypeName() == s.Dialect.LocalTime {
					r.values[i] = strings.Replace(strings.TrimSuffix(r.values[i], "Z"), "T", " ", 1)
				}
			}
			r.name = table + " " + r.values[0]
			all = append(all, r)
		}
		return err
	})
	return all, err
}

// changes returns a line for each row that differs.
func changes(before, after []row) (lines []string) {
	for i, b := range before {
		var changed []string
		for n := range b.values {
			if old, now := b.values[n], after[i].values[n]; old != now {
				changed = append(changed, fmt.Sprintf("%s %s -> %s", b.columns[n], cmp.Or(old, "-"), cmp.Or(now, "-")))
			}
		}
		if len(changed) > 0 {
			lines = append(lines, b.name+": "+strings.Join(changed, ", "))
		}
	}
	return lines
}

// unknownVariable is the code of PostgreSQL for a variable of the session that nobody has set.
const unknownVariable = "42704"

// trialError says why a close failed: its mapping is wrong, or it could not be tried.
func (s *Closer) trialError(ctx context.Context, t *trial, err error) error {
	answered := db.ErrorCode(err) != ""
	if wrong, ok := errors.AsType[*db.MappingError](err); ok {
		return wrong
	}
	switch {
	case errors.Is(err, ErrNoTrial):
		return err
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("%w: it took longer than %v; try again", ErrNoTrial, trialWithin)
	case db.Denied(err):
		return fmt.Errorf("%w: this user may not close orders: %w", ErrNoTrial, err)
	case s.Dialect.Fault(err) == db.FaultRetry, errors.Is(err, orderclose.ErrContended):
		return fmt.Errorf("%w: another transaction locks a row that the close of order %q needs; try again: %w", ErrNoTrial, t.OrderID, err)
	case t == nil || t.closing == nil || db.HasCode(err, db.BinlogCodes) || !answered && s.Dialect.Fault(err) == db.FaultUnavailable:
		return s.FailedTo(ctx, err, "try a close")
	}
	err = s.withCause(ctx, orderclose.CloseRequest{OrderID: t.OrderID}, err)
	p := mapping.Problem{Path: cmp.Or(t.closing.step, "table"), What: fmt.Sprintf("closing order %q fails: %v", t.OrderID, err),
		Fix: "correct the mapping, or the data of the order; nothing was changed"}
	if db.HasCode(err, unknownVariable) {
		p.Fix = "set the variable, which a trigger or a policy reads, for the user of the database: ALTER ROLE user SET name = 'value'; nothing was changed"
	}
	for _, a := range s.Q.M.Set {
		if p.Path == "status" && strings.Contains(err.Error(), a.Column) {
			p.Path = "set." + a.Column
		}
	}
	return s.Placed([]mapping.Problem{p})
}
