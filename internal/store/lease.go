package store

import (
	"context"
	"database/sql"
	"time"

	"gorm.io/gorm"

	"github.com/orderclose/orderclose/internal/text"
)

// TakeLease takes the lease of a name for a holder if nobody has it or it has ended, and makes it longer if the holder has it. It then
// ends after expiry. held is false if another holder has it. The database's clock decides, and any proxy or pooler may be in between.
// Each of its statements is a transaction.
func (s *Store) TakeLease(ctx context.Context, name, holder string, expiry time.Duration) (held bool, err error) {
	now, db := s.dialect.millis(), s.gorm.WithContext(ctx)
	taken := db.Exec("UPDATE leases SET holder = ?, until_ms = ? + ? WHERE name = ? AND (holder = ? OR until_ms < ?)",
		holder, now, expiry.Milliseconds(), name, holder, now)
	if held, err = taken.RowsAffected > 0, taken.Error; !held && err == nil {
		var rows []int
		rows, err = rowsOf(own(db), "SELECT CASE WHEN holder = ? THEN 1 ELSE 0 END FROM leases WHERE name = ?", []any{holder, name},
			func(own *int) []any { return []any{own} })
		if held = len(rows) > 0 && rows[0] == 1; err == nil && len(rows) == 0 { // MySQL counts no row that has the same end already
			err = db.Exec("INSERT INTO leases (name, holder, until_ms) VALUES (?, ?, ? + ?)", name, holder, now, expiry.Milliseconds()).Error
			held = err == nil
		}
	}
	if err != nil && s.dialect.Fault(err) == FaultDuplicate { // another holder was first
		err = nil
	}
	return held && err == nil, wrap(err, "take the lease %s", name)
}

// DropLease gives a lease back, if the holder has it.
func (s *Store) DropLease(ctx context.Context, name, holder string) error {
	return wrap(s.transact(ctx, func(tx *gorm.DB) error {
		return tx.Exec("UPDATE leases SET until_ms = 0 WHERE name = ? AND holder = ?", name, holder).Error
	}), "give back the lease %s", name)
}

// LeaseHolders says who has a lease of any name, and until when by the database's clock, the latest end first.
func (s *Store) LeaseHolders(ctx context.Context) (holders []string, err error) {
	err = eachRow(s.gorm.WithContext(ctx), "SELECT holder, until_ms FROM leases WHERE until_ms > ? ORDER BY until_ms DESC", []any{s.dialect.millis()},
		func(rows *sql.Rows) error {
			var holder string
			var until int64
			err := rows.Scan(&holder, &until)
			holders = append(holders, holder+" until "+text.Stamp(time.UnixMilli(until)))
			return err
		})
	return holders, wrap(err, "read the leases")
}
