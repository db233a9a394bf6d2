package outbox

import (
	"bytes"

	"orderclose"
)

// kept are rows, by id, that a worker has published and that the database did not
// delete: it takes no writes, or its answer was lost. The next try deletes them and
// publishes nothing, so that however long the database takes no writes, a worker
// publishes a row once. They are one batch at most. A row is compared whole, since ids may
// be given again to other rows.
type kept map[int64]orderclose.OutboxRow

func (k kept) add(rows []orderclose.OutboxRow, done []int64) {
	published := make(map[int64]bool, len(done))
	for _, id := range done {
		published[id] = true
	}
	for _, row := range rows {
		if published[row.ID] {
			k[row.ID] = row
		}
	}
}

// among returns the ids of those rows that are kept.
func (k kept) among(rows []orderclose.OutboxRow) (ids []int64) {
	for _, row := range rows {
		if former, is := k[row.ID]; is && former.OrderID == row.OrderID && bytes.Equal(former.Payload, row.Payload) {
			ids = append(ids, row.ID)
		}
	}
	return ids
}
