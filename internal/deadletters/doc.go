// Package deadletters manages the dead-letter topic: which dead letters are pending, sending them again (redrive), and discarding them.
//
// Topic lists and finds dead letters once, by reading the topic; MakePlan and Run redrive or discard them. A Follower follows the topic, for a metric
// and for pages. All of them have the same Index, which keeps 100,000 dead letters in memory, without their records, and counts the others.
//
// A dead letter is pending until a resolution behind it says that it was redriven or discarded (Resolution). So the topic is the only state: a
// reader that reads from a dead letter to the end knows whether it is pending. A redrive writes the resolution only after the record was acked. If it is
// killed in between, a later redrive sends the record again, which is harmless.
//
//	resolution.go  the record that says how a dead letter was resolved
//	letter.go      decoding a dead letter; with its record, for people
//	decide.go      whether and where to a dead letter can be sent again
//	index.go       an index of dead letters: which are pending (pure)
//	topic.go       reading the topic up to a snapshot
//	plan.go        what a redrive or a discard would do
//	run.go         doing it
//	follow.go      following the topic
package deadletters
