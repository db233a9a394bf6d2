package idfilter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/producer"
)

// phase is the phase of the filter's state.
type phase string

const (
	// broken: the bitmap is not complete. Nobody adds ids to it or uses it.
	broken phase = "broken"
	// building: checkouts add ids, a process adds the ids of older orders, and nobody uses it.
	building phase = "building"
	// ready: the bitmap has the ids of all orders.
	ready phase = "ready"
)

// state is the row of the filter.
type state struct {
	generation int64 // one more for each bitmap
	phase      phase
	bits       uint   // of the bitmap
	hashes     uint   // bits of an id
	server     string // the Redis server, by its run id; another one may lack ids
	beat       int64  // the last sign of life of the builder, or when the filter broke down, in unix milliseconds
	asked      time.Time
}

// ready reports whether the bitmap is complete.
func (s state) ready() bool { return s.phase == ready }

// same reports whether ids are added in the same way in both states.
func (s state) same(o state) bool { return s.generation == o.generation && s.phase == o.phase }

// Table creates the table of the filter, with one row.
const table = `CREATE TABLE IF NOT EXISTS checkout_id_filter (
  id         INT NOT NULL PRIMARY KEY,
  generation BIGINT NOT NULL,
  phase      VARCHAR(16) NOT NULL,
  bits       BIGINT NOT NULL,
  hashes     INT NOT NULL,
  server     VARCHAR(64) NOT NULL,
  beat       BIGINT NOT NULL
)`

// CreateTables creates the table of the filter and its row, if they are missing, in the database of
// the orders.
func CreateTables(ctx context.Context, db *sql.DB, d producer.Dialect) error {
	insert := "INSERT IGNORE INTO"
	if d == producer.SQLite {
		insert = "INSERT OR IGNORE INTO"
	}
	for _, statement := range []string{table, insert +
		" checkout_id_filter (id, generation, phase, bits, hashes, server, beat) VALUES (1, 0, 'broken', 0, 0, '', 0)"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the table of the filter of order ids: %w", err)
		}
	}
	return nil
}

const selectState = "SELECT generation, phase, bits, hashes, server, beat FROM checkout_id_filter WHERE id = 1"

func scanState(row *sql.Row) (s state, err error) {
	err = row.Scan(&s.generation, &s.phase, &s.bits, &s.hashes, &s.server, &s.beat)
	if err != nil {
		err = fmt.Errorf("read the state of the filter of order ids: %w", err)
	}
	return s, err
}

// state returns the state, which was read from the database within the last second.
func (f *Filter) state(ctx context.Context) (state, error) {
	f.mu.Lock()
	s := f.latest
	f.mu.Unlock()
	if !s.asked.IsZero() && time.Since(s.asked) < lease {
		return s, nil
	}
	read, err, _ := f.reads.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // others wait for it too
		defer cancel()
		return f.readState(ctx)
	})
	if err != nil {
		return state{}, fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
	}
	return read.(state), nil
}

// readState reads the state, and marks it as broken if Redis is another server now.
func (f *Filter) readState(ctx context.Context) (state, error) {
	asked := time.Now()
	s, err := scanState(f.o.DB.QueryRowContext(ctx, selectState))
	if err != nil {
		return s, err
	}
	s.asked = asked
	if s.phase != broken {
		// If Redis does not answer, the calls that follow fail, and say so.
		if server, err := f.server(ctx); err == nil && server != s.server {
			f.o.Logger.Warn("redis was restarted or replaced, will build the filter of order ids again")
			return f.markBroken(ctx, s)
		}
	}
	return f.saw(s), nil
}

// saw stores the state as the latest one.
func (f *Filter) saw(s state) state {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !s.same(f.latest) { // it may have been ready in between
		f.changedAt = time.Now()
	}
	f.latest = s
	return s
}

// forget makes the next call of state read the row.
func (f *Filter) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest.asked = time.Time{}
}

// breakDown is markBroken for a caller whose context may end.
func (f *Filter) breakDown(ctx context.Context, s state) (state, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	b, err := f.markBroken(ctx, s)
	if err != nil {
		return b, fmt.Errorf("%w: %w", orderclose.ErrUnavailable, err)
	}
	return b, nil
}

// markBroken marks the filter as broken, unless its state is another one meanwhile. It returns the
// present state.
func (f *Filter) markBroken(ctx context.Context, s state) (state, error) {
	_, err := f.o.DB.ExecContext(ctx, "UPDATE checkout_id_filter SET phase = 'broken', beat = ? WHERE id = 1 AND generation = ? AND phase = ?",
		time.Now().UnixMilli(), s.generation, s.phase)
	if err != nil {
		return s, fmt.Errorf("mark the filter of order ids as incomplete: %w", err)
	}
	asked := time.Now()
	now, err := scanState(f.o.DB.QueryRowContext(ctx, selectState))
	if err != nil {
		return s, err
	}
	now.asked = asked
	return f.saw(now), nil
}

// unmoved returns errMoved if the state is not s any more. It holds the row until the end of the
// transaction, so that a builder waits for the order before it reads all ids.
func (f *Filter) unmoved(ctx context.Context, t *shopdb.Tx, s state) error {
	query := selectState
	if f.o.Dialect != producer.SQLite { // which has one writer
		query += " LOCK IN SHARE MODE"
	}
	now, err := scanState(t.SQL().QueryRowContext(ctx, query))
	if err == nil && !now.same(s) {
		err = errMoved
	}
	return err
}

// server returns the run id of the Redis server; empty if the server has none.
func (f *Filter) server(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	info, err := f.o.Redis.Info(ctx, "server").Result()
	if refused := redis.Error(nil); errors.As(err, &refused) {
		return "", nil // an embedded server has no such section
	}
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id, err
		}
	}
	return "", err
}
