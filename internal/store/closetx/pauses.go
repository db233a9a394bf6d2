package closetx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store/internal/db"
)

// pausesPath is the value of the column path in each pause. The column is part of the key, and says nothing.
const pausesPath = "all"

// Pause keeps orders of a category, or with an empty category all orders, from being closed for a time. A close that has begun may
// finish. Pause replaces an earlier pause of the same category. If that one ends later, the error wraps pausing.ErrEndsLater; with
// replace Pause returns the pause that it ends earlier. The error may also wrap ErrNoCategory, or orderclose.ErrUnavailable if the
// database failed.
func (s *Closer) Pause(ctx context.Context, category string, lasting time.Duration, reason string, replace bool) (shortened []pausing.Pause, err error) {
	if category != "" && s.Q.M.Category == "" {
		return nil, ErrNoCategory
	}
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		on, now, err := s.lockPauses(tx)
		if err != nil {
			return err
		}
		if shortened, err = pausing.Shortened(on, category, now.Add(lasting), replace); err != nil {
			return err
		}
		return s.writePause(tx, pausesPath, category, now.Add(lasting), reason, now)
	})
	if db.HasCode(err, noSuchCharacter) {
		return nil, fmt.Errorf("the encoding of the database lacks a character of the reason or of the category: write the reason in other characters: %w", err)
	}
	return shortened, db.Wrap(err, "write the pause")
}

// noSuchCharacter is the code of PostgreSQL for a character that the encoding of the database lacks.
const noSuchCharacter = "22P05"

// endedFor is how long the row of a pause is kept after its end. BeginTurn returns it for pausesFor.
const endedFor = 90 * 24 * time.Hour

// lockPauses returns the pauses that are on, and the time. It deletes those that ended long ago. Others that pause or resume wait until the
// transaction ends, for the row without a path, which is never on.
func (s *Closer) lockPauses(tx *gorm.DB) (on []pausing.Pause, now time.Time, err error) {
	if err = s.writePause(tx, "", "", time.Unix(0, 0), "", time.Unix(0, 0)); err == nil {
		now, err = s.NowIn(tx)
	}
	if err == nil {
		err = tx.Exec("DELETE FROM pauses WHERE path <> '' AND until_at < ?", s.Dialect.Time(now.Add(-endedFor))).Error
	}
	if err == nil {
		on, err = s.pauses(tx, s.Dialect.Time(now))
	}
	return on, now, err
}

func (s *Closer) writePause(tx *gorm.DB, path, category string, until time.Time, reason string, now time.Time) error {
	return tx.Exec(s.Dialect.Replace("pauses", []string{"path", "category"}, "until_at", "reason", "created_at"),
		path, category, s.Dialect.Time(until), reason, s.Dialect.Time(now)).Error
}

// Resume ends the pause of a category, or with "" that of all orders. It returns the pauses that it has ended. Their rows stay, with this end.
func (s *Closer) Resume(ctx context.Context, category string) (ended []pausing.Pause, err error) {
	err = s.Transact(ctx, func(tx *gorm.DB) (err error) {
		on, now, err := s.lockPauses(tx)
		if err != nil {
			return err
		}
		ended = slices.DeleteFunc(on, func(p pausing.Pause) bool { return p.Category != category })
		return tx.Exec("UPDATE pauses SET until_at = ? WHERE path <> '' AND until_at > ? AND category = ?",
			s.Dialect.Time(now), s.Dialect.Time(now), category).Error
	})
	return ended, db.Wrap(err, "end the pause")
}

// Pauses returns the pauses that are on, by category.
func (s *Closer) Pauses(ctx context.Context) ([]pausing.Pause, error) {
	pauses, err := s.pauses(s.Gorm.WithContext(ctx), s.Dialect.Now())
	return pauses, s.FailedTo(ctx, err, "read the pauses")
}

// pauses returns the pauses that are on at a time, by category.
func (s *Closer) pauses(tx *gorm.DB, at any) ([]pausing.Pause, error) {
	return db.RowsOf(db.Own(tx), "SELECT category, until_at, reason, created_at FROM pauses WHERE until_at > ? ORDER BY category", []any{at},
		func(p *pausing.Pause) []any {
			return []any{&p.Category, db.TimeInto(&p.Until), &p.Reason, db.TimeInto(&p.CreatedAt)}
		})
}

// ErrNoCategory says that the mapping names no column with the orders' categories.
var ErrNoCategory = errors.New("topics.yaml maps no category (key orders.category)")
