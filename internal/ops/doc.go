// Package ops holds the work of the commands and of the console: it reads the state of the pipeline from Kafka and the database, and sends records
// again. A command of internal/cli parses its flags, calls this package, and prints the result; a page of internal/console renders it.
//
//	Pipeline       one pipeline and its servers: what commands and the console ask
//	ReadStatus     what waits in each partition, by how much it is overdue, and its owner
//	Control        earlier sweeps and delays, by the control topic
//	SearchTopics   the records of one order; NewHistory adds the database's rows
//	Audit          what the database has about each due order, compared with Kafka
//	PlanReplay     a window of the close topic, which Replay sends to the closer again
//
// Dead letters are in internal/ops/deadletters.
//
// Apart from Replay and a pause, everything here only reads, locks nothing, and needs no running part of the pipeline.
//
//	pipeline.go          the questions to one pipeline
//	overview.go          what is known of a pipeline, and what a problem is
//	check.go             what a check is: a question, and what its answer means; asking those of a list
//	checks.go            the list of checks, for console, status and doctor
//	judge.go             whether all is well: causes hide their consequences (pure)
//	question.go          a question to a server, whose answers many share
//	overdue.go           how many orders are overdue in the database
//	phrase.go            sentences that the console translates
//	topics.go            the required properties of the topics; those that an order passes, or in which records wait
//	topicsplan.go        how the topics differ from topics.yaml; the way of a delay (pure)
//	buckets.go           which buckets may not be removed, or are missing in topics.yaml
//	processes.go         the processes that run, and those that should
//	status.go            topics and partitions: bounded requests, a few at once
//	status_scan.go       searching behind a head that is not due
//	status_judge.go      what is overdue, and what to do about it (pure)
//	control.go           reading the control topic
//	delayanswer.go       when an order closes by topics.yaml, and which rule decides (pure)
//	pauser.go            checks of a pause, and the database that has the pauses
//	history.go           the history of an order, and in one sentence where the order is (pure)
//	history_timeline.go  what happened to an order, sorted by time (pure)
//	record_search.go     searching for the records of one order, each offset once
//	history_search.go    all records of one order, with what they say
//	audit.go             one audit: what is read, in which order
//	audit_judge.go       what one order should look like (pure)
//	audit_kafka.go       what Kafka and the outbox contain, in 8 bytes of each id
//	replay.go            planning and sending a replay
//	eventsagain.go       writing events again that their topic has lost
package ops
