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

// Pause keeps orders of a category, or with an empty category all orders, from being closed by some
// paths for a time. A close that has begun may finish. Pause replaces an earlier pause of the same path
// and category. If that one ends later, the error wraps wire.ErrEndsLater; with replace Pause returns the pauses that it ends
// earlier. The error may also wrap ErrNoCategory, or orderclose.ErrUnavailable if the database failed.
func (s *Store) Pause(ctx context.Context, paths []orderclose.Path, category string, lasting time.Duration, reason string, replace bool) (
	shortened []wire.Pause, err error) {
	if category != "" && s.q.m.Category == "" {
		return nil, ErrNoCategory
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		on, now, err := s.lockPauses(tx)
		if err != nil {
			return err
		}
		if shortened, err = wire.Shortened(on, paths, category, now.Add(lasting), replace); err != nil {
			return err
		}
		for _, p := range paths {
			if err := s.writePause(tx, p, category, now.Add(lasting), reason, now); err != nil {
				return err
			}
		}
		return nil
	})
	return shortened, wrap(err, "write the pause")
}

// lockPauses returns the pauses that are on, and the time. Others that pause or resume wait until the transaction ends, for
// the row without a path, which is never on.
func (s *Store) lockPauses(tx *gorm.DB) (on []wire.Pause, now time.Time, err error) {
	if err = s.writePause(tx, "", "", time.Unix(0, 0), "", time.Unix(0, 0)); err == nil {
		now, err = s.now(tx)
	}
	if err == nil {
		on, err = s.pauses(tx, "until_at > ?", s.dialect.time(now))
	}
	return on, now, err
}

func (s *Store) writePause(tx *gorm.DB, path orderclose.Path, category string, until time.Time, reason string, now time.Time) error {
	return tx.Exec(s.dialect.replace("pauses", 2, "path", "category", "until_at", "reason", "created_at"),
		path, category, s.dialect.time(until), reason, s.dialect.time(now)).Error
}

// Resume ends the pauses of a category on some paths; with an empty category, all pauses of the paths. It returns the
// pauses that it has ended.
func (s *Store) Resume(ctx context.Context, paths []orderclose.Path, category string) (ended []wire.Pause, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) (err error) {
		on, _, err := s.lockPauses(tx)
		if err != nil {
			return err
		}
		ended = slices.DeleteFunc(on, func(p wire.Pause) bool {
			return !slices.Contains(paths, p.Path) || category != "" && p.Category != category
		})
		return tx.Exec("DELETE FROM pauses WHERE path IN ? AND (category = ? OR ? = '')", paths, category, category).Error
	})
	return ended, wrap(err, "delete the pause")
}

// Pauses returns the pauses that are on, by path and category.
func (s *Store) Pauses(ctx context.Context) ([]wire.Pause, error) {
	pauses, err := s.pauses(s.gorm.WithContext(ctx), "until_at > ?", s.dialect.now())
	return pauses, s.failed(ctx, err, "read the pauses")
}

// readPauses reads the pauses of the path. If all orders are paused, it returns an error that says so.
func (c *closing) readPauses() error {
	c.paused = map[string]bool{}
	pauses, err := c.s.pauses(c.tx, "path = ? AND until_at > ?", c.path, c.s.dialect.now())
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

func (s *Store) pauses(tx *gorm.DB, condition string, args ...any) ([]wire.Pause, error) {
	return readAll(tx, "SELECT path, category, until_at, reason, created_at FROM pauses WHERE "+condition+" ORDER BY path, category", args,
		func(p *wire.Pause) []any {
			return []any{&p.Path, &p.Category, timeInto(&p.Until), &p.Reason, timeInto(&p.CreatedAt)}
		})
}
