// Package shoplocks has transactions of a shop that lock rows of an order in any order, for tests and benchmarks of what
// closes and shops wait for each other.
//
//	plan := shoplocks.Draw(random)
//	err := plan.Run(ctx, db, order, tally, func(tx *sql.Tx) error { … pay the order … })
package shoplocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store/postgres"
)

// First says which rows a transaction locks first.
type First string

// The values of First. A transaction locks the order's row in any case.
const (
	OrderFirst First = "order" // then, for some plans, the stock
	StockFirst First = "stock"
	LinesFirst First = "lines" // then the order, then the stock
)

// Plan is how a transaction locks rows.
type Plan struct {
	First     First
	SKUs      int           // how many of the order's SKUs it locks, at most
	Sorted    bool          // by SKU; else in the order of the lines
	Before    time.Duration // between the first locks and the order's row
	After     time.Duration // from the order's row to the end
	Isolation sql.IsolationLevel
	Rollback  bool
}

// Isolations are what Draw draws from: all that databases have with row locks.
var Isolations = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// Draw draws a plan with pauses of up to 20 ms. One of ten rolls back.
func Draw(r *rand.Rand) Plan {
	pause := func() time.Duration { return time.Duration(r.Int64N(int64(20 * time.Millisecond))) }
	return Plan{
		First: []First{OrderFirst, StockFirst, LinesFirst, StockFirst}[r.IntN(4)], SKUs: r.IntN(3),
		Before: pause(), After: pause(), Isolation: Isolations[r.IntN(len(Isolations))], Rollback: r.IntN(10) == 0,
	}
}

// Open opens a pool of the shop with the driver's defaults. Its statements have ? for arguments on each database.
func Open(dsn string) (*sql.DB, error) {
	if !postgres.IsDSN(dsn) {
		return sql.Open("mysql", dsn)
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return shopdb.OpenPostgres(*cfg), nil
}

// ErrRolledBack is the result of a plan with Rollback.
var ErrRolledBack = errors.New("the shop has rolled back")

// Run runs pay in a transaction that locks rows of the reference schema by the plan, and counts it.
func (p Plan) Run(ctx context.Context, db *sql.DB, order string, t *Tally, pay func(tx *sql.Tx) error) error {
	began := time.Now()
	err := p.run(ctx, db, order, pay)
	t.add(time.Since(began), p.Before+p.After, err)
	return err
}

func (p Plan) run(ctx context.Context, db *sql.DB, order string, pay func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: p.Isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	var skus []string
	steps := map[First]func() error{
		OrderFirst: func() error { return pay(tx) },
		LinesFirst: func() error {
			_, err := texts(ctx, tx, "SELECT sku_id FROM order_items WHERE order_id = ? FOR UPDATE", order)
			return err
		},
		StockFirst: func() error {
			for _, sku := range skus[:min(p.SKUs, len(skus))] {
				if _, err := texts(ctx, tx, "SELECT sku_id FROM stock WHERE sku_id = ? FOR UPDATE", sku); err != nil {
					return err
				}
			}
			return nil
		},
	}
	by := "line_no"
	if p.Sorted {
		by = "sku_id"
	}
	if skus, err = texts(ctx, tx, "SELECT sku_id FROM order_items WHERE order_id = ? ORDER BY "+by, order); err != nil {
		return err
	}
	turns := map[First][]First{OrderFirst: {OrderFirst, StockFirst}, StockFirst: {StockFirst, OrderFirst},
		LinesFirst: {LinesFirst, OrderFirst, StockFirst}}[p.First]
	for _, step := range turns {
		if step == OrderFirst {
			time.Sleep(p.Before)
		}
		if err := steps[step](); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	time.Sleep(p.After)
	if p.Rollback {
		return errors.Join(ErrRolledBack, tx.Rollback())
	}
	return tx.Commit()
}

// texts reads texts.
func texts(ctx context.Context, tx *sql.Tx, query string, args ...any) (all []string, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// Tally counts transactions. It is safe for concurrent use.
type Tally struct {
	mu        sync.Mutex
	took      []time.Duration
	waited    []time.Duration
	deadlocks int
	lost      int // other transactions that lost a conflict, such as a lock wait or a serialization failure
}

func (t *Tally) add(took, paused time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch code := code(err); {
	case code == "1213" || code == "40P01":
		t.deadlocks++
	case IsConflict(err):
		t.lost++
	}
	t.took, t.waited = append(t.took, took), append(t.waited, max(took-paused, 0))
}

func code(err error) string {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return fmt.Sprint(my.Number)
	}
	return postgres.Code(err)
}

// IsConflict reports whether a transaction of the shop lost a deadlock, a lock wait or a serialization, and has to be repeated.
func IsConflict(err error) bool {
	return slices.Contains([]string{"1213", "40P01", "1205", "1020", "40001", "55P03"}, code(err))
}

// Took returns how long the transactions took, Waited that without their own pauses.
func (t *Tally) Took() []time.Duration { return t.copy(&t.took) }

// Waited returns how long the transactions took without their own pauses: statements, waits for locks, and the commit.
func (t *Tally) Waited() []time.Duration { return t.copy(&t.waited) }

func (t *Tally) copy(of *[]time.Duration) []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(*of)
}

// Lost returns how many transactions lost a deadlock, and how many another conflict.
func (t *Tally) Lost() (deadlocks, others int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deadlocks, t.lost
}
