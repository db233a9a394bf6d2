// Package deadletters looks after the dead-letter topic: what in it is still
// pending, sending it again, and putting it aside.
//
// A dead letter is pending until a mark behind it says that it was redriven or
// discarded (orderclose.Mark). So the topic itself is the only state: whoever
// reads it from a dead letter to the end knows, and nothing else has to be kept.
//
//	letter.go   a dead letter, taken apart
//	decide.go   whether and where to it can be sent again (pure)
//	offsets.go  a set of offsets that stays small
//	index.go    which dead letters are pending (pure)
//	topic.go    reading the topic up to a snapshot
//	plan.go     what a redrive or a discard would do
//	run.go      doing it
//	watch.go    following the topic for a metric
package deadletters
