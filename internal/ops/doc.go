// Package ops holds the work of the commands and of the console: it reads the state of the pipeline from Kafka and the database, and sends records
// again. A command of internal/cli parses its flags, calls this package, and prints the result; a page of internal/console renders it.
//
//	Pipeline       one pipeline and its servers: what commands and the console ask
//	SearchTopics   the records of one order; NewHistory adds the database's rows
//	Audit          what the database has about each due order, compared with Kafka
//	PlanReplay     a window of the close topic, which Replay sends to the closer again
//
// Dead letters are in internal/deadletters, what waits in internal/backlog, and what a check is in
// internal/health. The parts of the pipeline use these, and not package ops.
//
// Apart from Replay and a pause, everything here only reads, locks nothing, and needs no running part of the pipeline.
//
//	pipeline.go          the questions to one pipeline; checks of a pause
//	questions.go         asking a list of checks, so that many share an answer; what several checks ask
//	checks.go            the list of checks, for console, status and doctor
//	overdue.go           how many orders are overdue in the database
//	plans.go             how the topics differ from topics.yaml; the way of a delay; when an order closes, and which rule decides (pure)
//	history.go           the history of an order, and in one sentence, which the console translates, where the order is (pure)
//	history_timeline.go  what happened to an order, sorted by time (pure)
//	history_search.go    searching for all records of one order, each offset once, with what they say
//	checkouts.go         which clocks of checkouts are wrong, by the database alone
//	audit.go             one audit: what is read, in which order
//	audit_judge.go       what one order should look like (pure)
//	replay.go            planning and sending a replay; writing events again that their topic has lost
package ops
