// Package wire is the format of the records of orders and of the rows of the outbox tables. It also has what the client of Kafka and its callers
// exchange. docs/wire.md describes the format for other languages.
//
// The root package has the events, and internal/signature the signatures of requests. The bytes of each format are
// stable. The types here are not: they belong to this module.
//
//	record.go      the record of an order: key, value and headers
//	problem.go     says what is wrong with a record that cannot be read
//	raw.go         a record in Kafka's own encoding, forwarded without decoding it
//	partition.go   what reading and appending a partition takes and returns
//	created.go     the creation time of an order, and whether a record is its first
//	commit.go      the metadata of a commit
//	limits.go      due times that cannot be right
//	resend.go      the copy of a record for a replay or redrive
//	deadletter.go  records that a stage gave up
//	outbox.go      rows of the outbox tables
//	schedule.go    the payload of a row that schedules an order
//	releasekey.go  the idempotency key of a release of stock
package wire
