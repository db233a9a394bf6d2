package outbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

// rowBatch holds rows that were read together, and records what becomes of them.
type rowBatch struct {
	rows       []wire.OutboxRow     // lowest id first, at least one
	done       []int64              // ids of rows that are in Kafka, as records or as dead letters
	err        error                // last error that a retry may fix
	refused    []refused            // rows to write to the dead-letter topic
	deadCauses []string             // causes of the dead letters that were written
	spans      map[int64]trace.Span // of traced rows that are being published, by id
}

// refused is a row of which no record can be made, or whose record Kafka rejects for good.
type refused struct {
	message       wire.Message // its offset is the id of the row
	cause, detail string
}

// ack notes that records are in Kafka.
func (b *rowBatch) ack(records []wire.RawRecord) {
	for _, r := range records {
		b.done = append(b.done, r.Offset)
		if span, is := b.spans[r.Offset]; is {
			tracing.End(span, nil)
			delete(b.spans, r.Offset)
		}
	}
}

// trace begins the span of a row if its order is traced. The record then carries the span's trace context.
func (b *rowBatch) trace(t tracing.Tracer, name string, m *wire.Message) {
	parent := t.Parent(m)
	if parent == "" {
		return
	}
	ctx, span := t.Continue(context.Background(), name, string(m.Key), parent)
	if !span.IsRecording() { // by a sampler of this process: the record keeps what it has
		return
	}
	m.SetHeader(wire.HeaderTraceparent, tracing.Of(ctx))
	if b.spans == nil {
		b.spans = map[int64]trace.Span{}
	}
	b.spans[m.Offset] = span
}

var errNotPublished = errors.New("the row was not published")

// endTraces ends the spans of rows that were not published.
func (b *rowBatch) endTraces() {
	for _, span := range b.spans {
		tracing.End(span, cmp.Or(b.err, errNotPublished))
	}
}

// refuse notes that a row must become a dead letter.
func (b *rowBatch) refuse(m wire.Message, cause string, err error) {
	b.refused = append(b.refused, refused{m, cause, err.Error()})
}

// last returns the highest id of the rows.
func (b *rowBatch) last() int64 { return b.rows[len(b.rows)-1].ID }

// stuck returns the error of a batch of which Kafka accepted no record.
func (b *rowBatch) stuck() error {
	if len(b.done) > 0 {
		return nil
	}
	return b.err
}

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
