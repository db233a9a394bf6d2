// Package wire is the format of everything that orderclose writes to Kafka and to its outbox
// tables. docs/wire.md describes it for other languages.
//
// The bytes of the format are stable. The types here are not: they belong to this module.
// What users of the module need is in the root package.
//
//	record.go      the record of an order: key, value and headers
//	problem.go     says what is wrong with a record that cannot be read
//	raw.go         a record in Kafka's own encoding, forwarded without decoding it
//	log.go         what reading and appending a partition takes and returns
//	commit.go      the metadata of a commit
//	bucket.go      how long a record of a bucket may stay unread
//	limits.go      due times that cannot be right
//	resend.go      the copy of a record for a replay or redrive
//	deadletter.go  records that a stage gave up
//	resolution.go  how a dead letter was resolved
//	pause.go       pauses of closing
//	sweep.go       finished sweeps, in the control topic
//	process.go     processes and their delays, in the control topic
//	outbox.go      rows of the outbox tables
//	schedule.go    the payload of a row that schedules an order
//	event.go       the idempotency key of a release of stock
package wire
