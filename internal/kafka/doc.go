// Package kafka is all that this project has to do with Kafka: it wraps
// segmentio/kafka-go in the few operations that the stages need, and keeps that
// library's traps in one place.
//
//	cluster.go  connections, and what the cluster looks like
//	fetch.go    reading one partition
//	rawfetch.go one fetch request and its answer, as bytes
//	identity.go whether a log is still the one that was read before
//	ownrequest.go requests of versions that the library does not know
//	batch.go    record batches, split into raw records with their append time
//	splice.go   raw records, put into a new batch byte for byte
//	append.go   one produce request to one partition
//	pipe.go     idempotent appends, tried until they are acked
//	coalesce.go many small appends made into few requests
//	group.go    which partitions this process has in a group, and their commits
//	membership.go  confirming a partition, and leaving a group
//	memory.go   the memory of fetches, used again
//	clock.go    an estimate of the brokers' clock
//	topics.go   what topics must look like, and what differs (pure)
//	admin.go    looking at topics and mending them
//	window.go   the records that were appended between two moments
//	commits.go  what a group has committed, and what waits after it
//	members.go  who is in a group, and which partitions are whose
//	peek.go     one record, without reading those after it
//	idle.go     whether a topic exists, and since when nothing was appended to it
//	errors.go   which errors mean what
//	connect.go  one new connection: TCP, TLS and SASL within one deadline
//	peers.go    brokers that hang, and their connections
//	security.go who we are, for every connection
//	access.go   why somebody is refused, in words (pure)
//	refusals.go where every request's refusal is noticed
//	topology.go where the partitions of the topics in use are
//	route.go    requests to the broker that they are for
//	lookup.go   asking for topics by their names
//	listing.go  the topics with a prefix, without reading about all others
//	seen.go     looking at topics without the right to see all of them
//
// Nothing here knows of orders. Stages declare the small interfaces they use,
// in words of the root package; *Cluster satisfies them.
package kafka
