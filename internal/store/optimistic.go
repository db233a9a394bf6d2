package store

import (
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// changeLock writes the assignments, behind others, of the columns by which the shop's code locks a row
// optimistically: that code reads the row, and later writes it only if the column has the same value. A number
// grows by one. A time becomes the present, or one step of the column more than it was: in one second two
// changes may have one present. row is the prefix of the columns that are read. Its arguments are lockArgs.
func changeLock(row, version string, lock *mapping.TimeColumn) (set string) {
	if version != "" {
		set = fmt.Sprintf(", %s = COALESCE(%s%[1]s, 0) + 1", mapping.Quote(version), row)
	}
	if lock != nil {
		set += fmt.Sprintf(", %s = CASE WHEN %s%[1]s >= ? THEN %[2]s%[1]s + %[3]s ELSE ? END", mapping.Quote(lock.Column), row, lockStep(lock))
	}
	return set
}

// lockStep writes the smallest difference of two values of a column, as all servers take it. SQLite takes that of
// unix times only.
func lockStep(lock *mapping.TimeColumn) string {
	if lock.Type == mapping.UnixSeconds || lock.Type == mapping.UnixMillis {
		return "1"
	}
	return fmt.Sprintf("INTERVAL '%s' SECOND", map[mapping.Precision]string{mapping.Seconds: "1", mapping.Millis: "0.001", mapping.Micros: "0.000001"}[lock.Precision])
}

// lockArgs returns the arguments of changeLock for an order.
func (q *statements) lockArgs(now time.Time) []any {
	if q.m.Lock == nil {
		return nil
	}
	return []any{q.lock.Arg(now), q.lock.Arg(now)}
}
