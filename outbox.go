package orderclose

import "time"

// Outbox names a table of rows on their way to Kafka: written in the transaction
// of what they tell of, deleted once Kafka has them.
type Outbox string

// EventOutbox holds the events that tell of closes, as CloudEvents in JSON.
const EventOutbox Outbox = "events"

// ScheduleOutbox holds orders whose close is to be scheduled: what producer.Outbox
// adds. docs/wire.md describes the payload.
const ScheduleOutbox Outbox = "schedules"

// OutboxRow is a row of an outbox.
type OutboxRow struct {
	ID      int64  // rises as rows are written; they may become visible in another order
	OrderID string // the key of the record that is made of the row
	Payload []byte
}

// OutboxBacklog is what waits in an outbox.
type OutboxBacklog struct {
	// Oldest is the age of the row with the lowest id, by the database's clock; 0
	// without rows.
	Oldest time.Duration
	// Rows is how many rows there are, counted up to OutboxCount.
	Rows int
}

// OutboxCount is how far the rows of an outbox are counted: an outbox in order has
// a few, and what is in one that is not matters less than that counting stays
// cheap.
const OutboxCount = 10_000
