// Package deadletters reads the dead-letter topic, which has the records that nobody could process.
//
// A dead letter has no state of its own. It is open, so that somebody has to look at it, while its order is unpaid in the
// database. If its order is not known, it is open for 24 hours: that of an event, one whose record has no id, and each one
// if no database has the orders.
//
//	letter.go  decoding a dead letter; with its record, for people
//	orders.go  which dead letters are open
//	topic.go   reading the topic once, for a list or one dead letter
//	follow.go  following the topic, for a metric and for pages
//	again.go   whether and where to a dead letter can be sent again
package deadletters
