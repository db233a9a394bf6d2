package store

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// LastSweep returns when the sweep of that name last finished, zero if never, and the current
// time, both by the database's clock.
func (s *Store) LastSweep(ctx context.Context, name string) (finished, now time.Time, err error) {
	err = s.gorm.WithContext(ctx).Raw("SELECT (SELECT finished_at FROM sweeps WHERE name = ?), ?", name, s.dialect.now()).
		Row().Scan(timeInto(&finished), timeInto(&now))
	return finished, now, s.failed(ctx, err, "read when %s was last swept", name)
}

// SweepFinished records that the sweep of that name finished now. If orders are found by the primary key, it also moves
// the low-water mark: only one process sweeps at a time.
func (s *Store) SweepFinished(ctx context.Context, name string) error {
	if err := s.moveMark(ctx); err != nil {
		return s.failed(ctx, err, "move the low-water mark of %s", name)
	}
	return wrap(s.writeSweep(ctx, name, s.dialect.now()), "record the sweep of %s", name)
}

func (s *Store) writeSweep(ctx context.Context, name string, at any) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		return tx.Exec(s.dialect.replace("sweeps", 1, "name", "finished_at"), name, at).Error
	})
}

// keptPause is the row of sweeps for the pause of a sweep. No topic has such a name.
func keptPause(name string) string { return name + "/pause" }

// KeepPause stores until when the sweeps of that name are paused, for pauses that are not in the
// database. A time that is over means that no pause is on.
func (s *Store) KeepPause(ctx context.Context, name string, until time.Time) error {
	return wrap(s.writeSweep(ctx, keptPause(name), s.dialect.time(until)), "keep the pause of sweeps of %s", name)
}

// KeptPause returns the time that KeepPause stored last. If there is none, known is false.
func (s *Store) KeptPause(ctx context.Context, name string) (until time.Time, known bool, err error) {
	until, _, err = s.LastSweep(ctx, keptPause(name))
	return until, !until.IsZero(), err
}
