package outbox

import (
	"bytes"

	"github.com/orderclose/orderclose/internal/wire"
)

// undeleted holds, by id, the rows that a worker has published and that the database did
// not delete, because it accepts no writes or its answer was lost. The next attempt
// deletes these rows and publishes nothing. So a worker publishes a row once, however
// long the database accepts no writes. It holds at most one batch. Rows are compared
// by content too, because a database may reuse an id.
type undeleted map[int64]wire.OutboxRow

func (u undeleted) add(rows []wire.OutboxRow, done []int64) {
	published := setOf(done)
	for _, row := range rows {
		if published[row.ID] {
			u[row.ID] = row
		}
	}
}

func setOf(ids []int64) map[int64]bool {
	set := make(map[int64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// idsIn returns the ids of those of the given rows that were published already.
func (u undeleted) idsIn(rows []wire.OutboxRow) (ids []int64) {
	for _, row := range rows {
		if former, is := u[row.ID]; is && former.OrderID == row.OrderID && bytes.Equal(former.Payload, row.Payload) {
			ids = append(ids, row.ID)
		}
	}
	return ids
}
