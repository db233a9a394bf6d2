package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// pausesPath is the value of the column path in each pause. The column is part of the key, and says nothing.
const pausesPath = "all"

// Pause keeps orders of a category, or with an empty category all orders, from being closed for a time. A close that has begun may
// finish. Pause replaces an earlier pause of the same category. If that one ends later, the error wraps wire.ErrEndsLater; with
// replace Pause returns the pause that it ends earlier. The error may also wrap ErrNoCategory, or orderclose.ErrUnavailable if the
// database failed.
func (s *Store) Pause(ctx context.Context, category string, lasting time.Duration, reason string, replace bool) (shortened []wire.Pause, err error) {
	if category != "" && s.q.m.Category == "" {
		return nil, ErrNoCategory
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		on, now, err := s.lockPauses(tx)
		if err != nil {
			return err
		}
		if shortened, err = wire.Shortened(on, category, now.Add(lasting), replace); err != nil {
			return err
		}
		return s.writePause(tx, pausesPath, category, now.Add(lasting), reason, now)
	})
	return shortened, wrap(err, "write the pause")
}

// endedFor is how long the row of a pause is kept after its end. BeginTurn returns it for pausesFor.
const endedFor = 90 * 24 * time.Hour

// lockPauses returns the pauses that are on, and the time. It deletes those that ended long ago. Others that pause or resume wait until the
// transaction ends, for the row without a path, which is never on.
func (s *Store) lockPauses(tx *gorm.DB) (on []wire.Pause, now time.Time, err error) {
	if err = s.writePause(tx, "", "", time.Unix(0, 0), "", time.Unix(0, 0)); err == nil {
		now, err = s.now(tx)
	}
	if err == nil {
		err = tx.Exec("DELETE FROM pauses WHERE path <> '' AND until_at < ?", s.dialect.time(now.Add(-endedFor))).Error
	}
	if err == nil {
		on, err = s.pauses(tx, s.dialect.time(now))
	}
	return on, now, err
}

func (s *Store) writePause(tx *gorm.DB, path, category string, until time.Time, reason string, now time.Time) error {
	return tx.Exec(s.dialect.replace("pauses", 2, "path", "category", "until_at", "reason", "created_at"),
		path, category, s.dialect.time(until), reason, s.dialect.time(now)).Error
}

// Resume ends the pause of a category; with an empty category, all pauses. It returns the pauses that it has ended. Their rows stay, with this end.
func (s *Store) Resume(ctx context.Context, category string) (ended []wire.Pause, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) (err error) {
		on, now, err := s.lockPauses(tx)
		if err != nil {
			return err
		}
		ended = slices.DeleteFunc(on, func(p wire.Pause) bool { return category != "" && p.Category != category })
		return tx.Exec("UPDATE pauses SET until_at = ? WHERE path <> '' AND until_at > ? AND (category = ? OR ? = '')",
			s.dialect.time(now), s.dialect.time(now), category, category).Error
	})
	return ended, wrap(err, "end the pause")
}

// Pauses returns the pauses that are on, by category.
func (s *Store) Pauses(ctx context.Context) ([]wire.Pause, error) {
	pauses, err := s.pauses(s.gorm.WithContext(ctx), s.dialect.now())
	return pauses, s.failed(ctx, err, "read the pauses")
}

// readPauses reads the pauses. If all orders are paused, it returns an error that says so. A call without a path obeys no pause.
func (c *closing) readPauses() error {
	c.paused = map[string]bool{}
	if c.path == "" {
		return nil
	}
	pauses, err := c.s.pauses(c.tx, c.s.dialect.now())
	if err != nil {
		return err
	}
	for _, p := range pauses {
		if p.Category == "" { //mutant:global-pause-ignored
			return fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, p.Err())
		}
		c.paused[p.Category] = true
	}
	return nil
}

// pauses returns the pauses that are on at a time, by category.
func (s *Store) pauses(tx *gorm.DB, at any) ([]wire.Pause, error) {
	return rowsOf(own(tx), "SELECT category, until_at, reason, created_at FROM pauses WHERE until_at > ? ORDER BY category", []any{at},
		func(p *wire.Pause) []any {
			return []any{&p.Category, timeInto(&p.Until), &p.Reason, timeInto(&p.CreatedAt)}
		})
}
