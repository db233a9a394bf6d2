// Package deadletters manages the dead-letter topic: which dead letters are pending,
// sending them again (redrive), and discarding them.
//
// Topic lists and finds dead letters once, by reading the topic; MakePlan and Run redrive or
// discard them. Watch follows the topic for a metric. A Catalog follows it for pages and searches
// in milliseconds: it keeps up to 64 bytes of each dead letter in memory, and reads only the
// records that it returns.
//
// A dead letter is pending until a resolution behind it says that it was redriven or discarded
// (wire.Resolution). So the topic is the only state: a reader that reads from a dead letter
// to the end knows whether it is pending. A redrive writes the resolution only after the record
// was acked. If it is killed in between, a later redrive sends the record again, which is
// harmless.
//
//	whole.go    a dead letter with its record, for people
//	letter.go   decoding a dead letter
//	decide.go   whether and where to a dead letter can be sent again (pure)
//	offsets.go  a compact set of offsets
//	index.go    which dead letters are pending (pure)
//	topic.go    reading the topic up to a snapshot
//	plan.go     what a redrive or a discard would do
//	run.go      doing it
//	follow.go   following the topic, with the index of what is pending
//	watch.go    following it for a metric
//	catalog.go  following it for pages: an index of all dead letters
//	entries.go  what the catalog keeps of each dead letter
//	page.go     pages of the catalog, by filter
//	order.go    the dead letters of one order in the catalog
//	list.go     reading the dead letters of a page
package deadletters
