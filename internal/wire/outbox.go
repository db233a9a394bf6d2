package wire

import "time"

// Outbox names a table of rows that wait to be published to Kafka. A row is written
// in the transaction that it reports, and deleted when Kafka has acked its record.
type Outbox string

// EventOutbox holds the events for closed orders, as CloudEvents in JSON.
const EventOutbox Outbox = "events"

// ScheduleOutbox holds orders whose close is to be scheduled; producer.Outbox adds
// them. docs/wire.md describes the payload.
const ScheduleOutbox Outbox = "schedules"

// OutboxRow is a row of an outbox.
type OutboxRow struct {
	ID      int64  // rises in the order of inserts; rows may become visible in another order
	OrderID string // the key of the row's record
	Payload []byte
	Created time.Time // when the row was inserted, by the database's clock
	// TooLarge is the size of the payload in the table, in bytes, if it is more than MaxRecordBytes; otherwise 0. Payload then has only the beginning.
	TooLarge int
	// Traceparent is the W3C trace context of an event; "" if there is none. A schedule has it in its payload.
	Traceparent string
}

// OutboxBacklog describes the rows that wait in an outbox.
type OutboxBacklog struct {
	// Oldest is the age of the row with the lowest id, by the database's clock; 0 if
	// there are no rows.
	Oldest time.Duration
	// Rows is the number of rows, counted up to OutboxCount.
	Rows int
}

// OutboxCount is the highest number of rows that are counted. A healthy outbox has
// only a few rows; for an unhealthy one a cheap count matters more than an exact one.
const OutboxCount = 10_000
