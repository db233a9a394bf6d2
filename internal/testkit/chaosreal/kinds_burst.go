//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
)

const (
	powerBurst  = "power-burst"
	burstOrders = 100_000
	burstRows   = 1_000 // of one INSERT
	// burstLead is the time in which the orders of a burst are created. All are due at its end.
	burstLead = 45 * time.Second
	// lostClosedAfter is how long after the return of power the orders are closed whose records are gone, beside the time in which the compensator
	// may try all unpaid orders, or in which this machine closes those that have a record.
	lostClosedAfter = 12 * time.Second
)

// burst is a cut of power while many orders are closed that were due at once.
type burst struct {
	prefix string // of its orders
	back   time.Time
	gone   []int64 // from the end of each partition of the close topic
	unpaid int     // at the return
}

// cutInBurst cuts the power of everything while the pipeline closes a burst of orders: the n-th cut in the n-th second.
func (w *world) cutInBurst(e event) error {
	b := &burst{prefix: fmt.Sprintf("%sburst%d_", w.prefix, len(w.bursts))}
	w.bursts = append(w.bursts, b)
	second := time.Duration(len(w.bursts)) * time.Second
	due, err := w.createBurst(b)
	if err != nil {
		return err
	}
	if time.Now().After(due) {
		return fmt.Errorf("%d orders were not created within %v", burstOrders, burstLead)
	}
	w.wait(time.Until(due.Add(second)))
	w.killParts()
	before, err := w.ends()
	for _, path := range w.segments("__consumer_offsets-") { // the kernel may write any file first: no relay reads again what the close topic loses
		f, failed := os.Open(path)
		err = errors.Join(err, failed, f.Sync(), f.Close())
	}
	if err != nil {
		return err
	}
	return w.cutEverything(e, nil, func() error {
		var after []int64
		err := w.eventually(func() (err error) { after, err = w.ends(); return err })
		for p := range after {
			b.gone = append(b.gone, max(0, before[p]-after[p])) // the shop appends too
		}
		b.back = time.Now()
		err = errors.Join(err, w.shop.db.QueryRowContext(w.ctx, "SELECT COUNT(*) FROM orders WHERE status = 0").Scan(&b.unpaid))
		note("      second %v of a burst: %v records are gone from the close topic; %d orders are unpaid", second, b.gone, b.unpaid)
		return err
	})
}

// createBurst creates the rows and the records of a burst. It returns their due time.
func (w *world) createBurst(b *burst) (time.Time, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	due := now.Add(burstLead)
	const moment = "2006-01-02 15:04:05.000"
	all, ctx := errgroup.WithContext(w.ctx)
	all.SetLimit(1_000)
	for n := 0; n < burstOrders; n += burstRows {
		var rows []string
		for i := range burstRows {
			rows = append(rows, fmt.Sprintf("('%s%06d', 'other', 0, '%s', '%s', 1)", b.prefix, n+i, now.Format(moment), due.Format(moment)))
		}
		insert := "INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES " + strings.Join(rows, ",")
		if _, err := w.shop.db.ExecContext(ctx, insert); err != nil {
			return due, errors.Join(err, all.Wait())
		}
		for i := range burstRows {
			o := orderclose.Order{ID: fmt.Sprintf("%s%06d", b.prefix, n+i), Category: "other", CreatedAt: now, Due: due}
			all.Go(func() error { return w.eventually(func() error { return w.shop.Producer.Schedule(ctx, o) }) })
		}
	}
	return due, all.Wait()
}

// ends returns the end of each partition of the close topic.
func (w *world) ends() (all []int64, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	for p := range w.cfg.Partitions {
		_, end, failed := w.kafka.Bounds(ctx, w.cfg.Topics.Close, p)
		all, err = append(all, end), errors.Join(err, failed)
	}
	return all, err
}

// judgeBursts returns what was wrong with the bursts. arrivals are the records of the close topic by order.
func (w *world) judgeBursts(arrivals map[string]int) (found []string) {
	most := int64(1000)
	if w.cluster.sync == "always" {
		most = 0
	}
	for i, b := range w.bursts {
		if b.back.IsZero() {
			continue // it was not played
		}
		rows, err := w.shop.db.QueryContext(w.ctx, "SELECT id, closed_at FROM orders WHERE id LIKE '"+b.prefix+"%' AND closed_at IS NOT NULL")
		if err != nil {
			return append(found, err.Error())
		}
		lost, last, others := 0, b.back, b.back
		for rows.Next() {
			var id string
			var closed time.Time
			if err := rows.Scan(&id, &closed); err != nil {
				found = append(found, err.Error())
			}
			switch {
			case closed.Before(b.back):
			case arrivals[id] > 0:
				others = slices.MaxFunc([]time.Time{others, closed}, time.Time.Compare)
			default: // it was lost after the relay had committed it
				lost++
				last = slices.MaxFunc([]time.Time{last, closed}, time.Time.Compare)
			}
		}
		_ = rows.Close()
		byRate := time.Duration(b.unpaid) * time.Second / time.Duration(w.cfg.Compensator.Rate)
		took, limit := last.Sub(b.back), lostClosedAfter+max(byRate, others.Sub(b.back))
		note("burst %d: records gone %v; %d orders have none any more, closed up to %.1f s after the return (12 s + N/R: %.1f s), the others up to %.1f s",
			i+1, b.gone, lost, took.Seconds(), (lostClosedAfter + byRate).Seconds(), others.Sub(b.back).Seconds())
		if took > limit || slices.Max(b.gone) > most {
			found = append(found, fmt.Sprintf("burst %d: the close topic lost %v records, want at most %d of a partition; "+
				"%d orders without a record were closed up to %v after the return, want %v", i+1, b.gone, most, lost, took, limit))
		}
	}
	return found
}
