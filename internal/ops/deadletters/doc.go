// Package deadletters manages the dead-letter topic: which dead letters are pending,
// sending them again (redrive), and discarding them.
//
// Topic lists and finds dead letters once, by reading the topic; MakePlan and Run redrive or
// discard them. Watch follows the topic for a metric. A Catalog follows it for pages and searches
// in milliseconds: it keeps up to 64 bytes of each dead letter in memory, and reads only the
// records that it returns. All of them have the same Index.
//
// A dead letter is pending until a resolution behind it says that it was redriven or discarded
// (wire.Resolution). So the topic is the only state: a reader that reads from a dead letter
// to the end knows whether it is pending. A redrive writes the resolution only after the record
// was acked. If it is killed in between, a later redrive sends the record again, which is
// harmless.
//
//	letter.go   decoding a dead letter; with its record, for people
//	decide.go   whether and where to a dead letter can be sent again; internal/ops/eventcheck.go judges events
//	index.go    an index of dead letters: which are pending (pure)
//	entries.go  what the index keeps of each
//	topic.go    reading the topic up to a snapshot
//	plan.go     what a redrive or a discard would do
//	run.go      doing it
//	catalog.go  a catalog: the index of the whole topic, and its numbers
//	follow.go   following the topic
//	watch.go    following it for a metric
//	page.go     pages of the catalog, by filter
//	list.go     reading the dead letters of a page, and finding those of one order
package deadletters
