package outbox

import (
	"slices"
	"sync"

	"github.com/orderclose/orderclose/internal/wire"
)

// batch holds rows that were read together, and records what becomes of them. Several
// appenders may call ack, refuse, skip and fail at once. The fields are read after all
// appenders have ended.
type batch struct {
	rows []wire.OutboxRow // lowest id first, at least one

	mu         sync.Mutex // protects the fields below
	done       []int64    // ids of rows that are in Kafka, as records or as dead letters
	skipped    int        // rows that can for now be written neither to their topic nor to the dead-letter topic
	err        error      // last error that a retry may fix
	refused    []refused  // rows to write to the dead-letter topic
	deadCauses []string   // causes of the dead letters that were written
}

// refused is a row of which no record can be made, or whose record Kafka rejects for good.
type refused struct {
	message       wire.Message // its offset is the id of the row
	cause, detail string
}

// ack notes that records are in Kafka.
func (b *batch) ack(records []wire.RawRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		b.done = append(b.done, r.Offset)
	}
}

// refuse notes that a row must become a dead letter.
func (b *batch) refuse(m wire.Message, cause string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, refused{m, cause, err.Error()})
}

// deadLettered notes that the dead letter of a row is in Kafka.
func (b *batch) deadLettered(id int64, cause string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done, b.deadCauses = append(b.done, id), append(b.deadCauses, cause)
}

// skip notes that rows are not tried.
func (b *batch) skip(rows int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skipped += rows
}

// fail notes that rows could not be written because of err.
func (b *batch) fail(rows int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skipped += rows
	b.err = err
}

// tried returns how many rows were not skipped.
func (b *batch) tried() int { return len(b.rows) - b.skipped }

// last returns the highest id of the rows.
func (b *batch) last() int64 { return b.rows[len(b.rows)-1].ID }

// highestSkipped returns the highest id of the skipped rows; 0 if no row was skipped.
func (b *batch) highestSkipped() int64 {
	if b.skipped == 0 {
		return 0
	}
	done := setOf(b.done)
	for _, row := range slices.Backward(b.rows) {
		if !done[row.ID] {
			return row.ID
		}
	}
	return 0
}

// stuck returns the error of a batch of which Kafka accepted no record.
func (b *batch) stuck() error {
	if len(b.done) > 0 {
		return nil
	}
	return b.err
}
