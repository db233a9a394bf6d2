// Package kafka is all that this project has to do with Kafka: it wraps
// segmentio/kafka-go in the few operations that the stages need, and keeps that
// library's traps in one place.
//
//	cluster.go  connections, and what the cluster looks like
//	fetch.go    one raw fetch of one partition
//	batch.go    record batches, split into raw records with their append time
//	splice.go   raw records, put into a new batch byte for byte
//	append.go   one produce request to one partition
//	pipe.go     idempotent appends, tried until they are acked
//	coalesce.go many small appends made into few requests
//	group.go    membership: which partitions are ours, and their commits
//	topics.go   what topics must look like, and what differs (pure)
//	admin.go    looking at topics and mending them
//	window.go   the records that were appended between two moments
//	commits.go  what a group has committed, and what waits after it
//	members.go  who is in a group, and which partitions are whose
//	peek.go     one record, without reading those after it
//	errors.go   which errors mean what
//	security.go TLS and SASL, for every connection
//	access.go   why somebody is refused, in words (pure)
//	refusals.go where every request's refusal is noticed
//	lookup.go   telling a hidden topic from a missing one
//	seen.go     looking at topics without the right to see all of them
//
// Nothing here knows of orders. Stages declare the small interfaces they use,
// in words of the root package; *Cluster satisfies them.
package kafka
