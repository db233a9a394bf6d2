// Package ops holds the work of the commands: it reads the state of the pipeline from Kafka
// and the database, and sends records again. A command of internal/cli parses its flags,
// calls this package, and prints the result.
//
//	ReadStatus     what waits in each partition, by how much it is overdue, and its owner
//	NewForecast    how many records leave each bucket in each interval of time
//	SearchTopics   the records of one order; NewHistory adds the database's rows
//	Audit          what the database has about each due order, compared with Kafka
//	Investigator   why the pipeline missed the orders that a sweep found
//	NewReplayPlan  a window of the close topic, which Replay sends to the closer again
//
// Dead letters are in internal/ops/deadletters.
//
// Apart from Replay, everything here only reads, locks nothing, and needs no running part of
// the pipeline.
//
//	topics.go            the required properties of the topics; the names of the groups
//	ordertopics.go       the topics that an order passes, and those in which records wait
//	buckets.go           which buckets may not be removed, or are missing in topics.yaml
//	shellquote.go        quoting an order's id for a shell
//	status.go            topics and partitions: bounded requests, a few at once
//	status_scan.go       searching behind a head that is not due
//	status_judge.go      what is overdue, and what to do about it (pure)
//	forecast.go          offsets by append time: bounded requests, a few at once
//	forecast_steps.go    the intervals, and counting between offsets (pure)
//	history.go           the history of an order, and in one sentence where the order is (pure)
//	history_timeline.go  what happened to an order, sorted by time (pure)
//	history_search.go    searching for the records of one order, up to a limit
//	history_index.go     searching for the waiting records of many orders, in one pass
//	cause.go             the investigation of one sweep
//	cause_decide.go      the cause of one order, computed from what was found (pure)
//	audit.go             one audit: what is read, in which order
//	audit_judge.go       what one order should look like (pure)
//	audit_kafka.go       what Kafka and the outbox contain
//	audit_hashes.go      a set of ids in 8 bytes each
//	replay.go            planning and sending a replay
package ops
