package idfilter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bits-and-blooms/bloom/v3"

	"github.com/orderclose/orderclose/examples/checkout/shopdb"
)

const (
	// buildEvery is how often a process looks whether the filter must be built.
	buildEvery = time.Second
	// buildPause is how long a filter that broke down is not built. A process that cannot reach Redis
	// would break it again at once.
	buildPause = 10 * time.Second
	// buildDead is how long a builder may show no sign of life before another one takes over.
	buildDead = 30 * time.Second
	// fullEvery is how often a process looks whether the filter is full.
	fullEvery = time.Minute
	// pageSize is the number of ids that are read at once.
	pageSize = 5000
	// uploadTimeout bounds the upload of a bitmap.
	uploadTimeout = time.Minute
)

// Run builds the filter whenever it is broken, until ctx ends. Each process may run it: one of them
// builds. The ids of all orders are read from the database for that.
func (f *Filter) Run(ctx context.Context) {
	tick := time.NewTicker(buildEvery)
	defer tick.Stop()
	var lookedAt time.Time
	for {
		if err := f.maintain(ctx, &lookedAt); err != nil && ctx.Err() == nil {
			f.o.Logger.Warn("building the filter of order ids failed, will retry; meanwhile the database answers", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// maintain builds the filter if it must be built.
func (f *Filter) maintain(ctx context.Context, lookedAt *time.Time) error {
	s, err := f.state(ctx)
	if err != nil {
		return err
	}
	if s.ready() && time.Since(*lookedAt) > fullEvery {
		*lookedAt = time.Now()
		full, err := f.full(ctx, s)
		if err != nil {
			return err
		}
		if full {
			f.o.Logger.Info("the filter of order ids is full, a larger one will be built")
			s, err = f.markBroken(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	// The database's clock decides in claim; this one only spares queries.
	if quiet := time.Since(time.UnixMilli(s.beat)); s.ready() || s.phase == building && quiet < buildDead || s.phase == broken && quiet < buildPause {
		return nil
	}
	s, claimed, err := f.claim(ctx, s)
	if err != nil || !claimed {
		return err
	}
	if err := f.build(ctx, s); err != nil {
		_, failed := f.breakDown(ctx, s)
		return errors.Join(err, failed)
	}
	return nil
}

// claim makes this process the builder of the next bitmap, unless another process is. It waits for
// the checkouts under way, whose ids may be in no bitmap: their orders are in the database then.
func (f *Filter) claim(ctx context.Context, s state) (next state, ok bool, err error) {
	server, err := f.server(ctx)
	if err != nil {
		return s, false, fmt.Errorf("redis: %w", err)
	}
	var orders int64
	if err := f.o.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&orders); err != nil {
		return s, false, err
	}
	bits, hashes := bloom.EstimateParameters(max(uint(f.o.Capacity), uint(2*orders)), f.o.FalsePositives)
	next = state{generation: s.generation + 1, phase: building, bits: bits, hashes: hashes, server: server}
	err = f.o.Orders.Checkout(ctx, func(t *shopdb.Tx) error {
		now, err := t.Now()
		if err != nil {
			return err
		}
		next.beat = now.UnixMilli()
		res, err := t.SQL().ExecContext(ctx, "UPDATE checkout_id_filter SET generation = ?, phase = 'building', bits = ?, hashes = ?, server = ?, beat = ?"+
			" WHERE id = 1 AND generation = ? AND (phase = 'broken' AND beat < ? OR phase = 'building' AND beat < ?)",
			next.generation, bits, hashes, server, next.beat, s.generation, next.beat-buildPause.Milliseconds(), next.beat-buildDead.Milliseconds())
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if ok = n == 1; err != nil || !ok {
			return err
		}
		return f.mark(ctx, next) // before the commit: no checkout knows the bitmap yet
	})
	f.forget()
	return next, ok && err == nil, err
}

// build adds the ids of all orders to a bitmap that this process has claimed, and makes the filter
// ready.
func (f *Filter) build(ctx context.Context, s state) error {
	began := time.Now()
	// A process may still use the last bitmap. It then finds that the mark is missing.
	if err := f.o.Redis.Del(ctx, f.key(s.generation-1)).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	bitmap := make([]byte, s.bits/8+1)
	orders, after := 0, ""
	for pages := int64(1); ; pages++ {
		ids, err := f.page(ctx, after)
		if err != nil {
			return err
		}
		for _, id := range ids {
			for _, bit := range s.positions(id) {
				bitmap[bit/8] |= 0x80 >> (bit % 8) // Redis counts from the highest bit of a byte
			}
		}
		if err := f.sign(ctx, s, "beat = ?", s.beat+time.Since(began).Milliseconds()+pages); err != nil { // pages: never the same value
			return err
		}
		orders += len(ids)
		if len(ids) < pageSize {
			break
		}
		after = ids[len(ids)-1]
	}
	uploading, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	merged, err := 0, f.o.Redis.Set(uploading, f.key(s.generation)+":build", bitmap, uploadTimeout).Err()
	if err == nil {
		merged, err = mergeScript.Run(uploading, f.o.Redis, []string{f.key(s.generation), f.key(s.generation) + ":build"}, s.markAt()).Int()
	}
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if merged == 0 {
		return errors.New("redis has lost the bitmap while it was built")
	}
	// A process that has not seen that the filter was rebuilt may use the last bitmap for this long.
	if !sleep(ctx, lease+leaseMargin-time.Since(began)) {
		return ctx.Err()
	}
	if err := f.sign(ctx, s, "phase = ?", ready); err != nil {
		return err
	}
	f.forget()
	f.o.Logger.Info("filter of order ids built", "orders", orders, "bytes", len(bitmap), "took", time.Since(began))
	return nil
}

// page reads the ids that follow an id.
func (f *Filter) page(ctx context.Context, after string) (ids []string, err error) {
	rows, err := f.o.DB.QueryContext(ctx, "SELECT id FROM orders WHERE id > ? ORDER BY id LIMIT ?", after, pageSize)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// sign changes the row while this process is its builder, and returns an error otherwise.
func (f *Filter) sign(ctx context.Context, s state, set string, arg any) error {
	res, err := f.o.DB.ExecContext(ctx, "UPDATE checkout_id_filter SET "+set+" WHERE id = 1 AND generation = ? AND phase = 'building'", arg, s.generation)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = errors.New("the filter is not being built by this process any more")
	}
	return err
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
