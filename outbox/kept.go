package outbox

import (
	"bytes"

	"orderclose"
)

// kept holds, by id, the rows that a worker has published and that the database did not
// delete, because it accepts no writes or its answer was lost. The next try deletes these
// rows and publishes nothing. A worker therefore publishes a row once, however long the
// database accepts no writes. kept holds one batch at most. Rows are compared by their
// content too, because a database may reuse an id.
type kept map[int64]orderclose.OutboxRow

func (k kept) add(rows []orderclose.OutboxRow, done []int64) {
	published := setOf(done)
	for _, row := range rows {
		if published[row.ID] {
			k[row.ID] = row
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

// among returns the ids of the rows that kept holds.
func (k kept) among(rows []orderclose.OutboxRow) (ids []int64) {
	for _, row := range rows {
		if former, is := k[row.ID]; is && former.OrderID == row.OrderID && bytes.Equal(former.Payload, row.Payload) {
			ids = append(ids, row.ID)
		}
	}
	return ids
}
