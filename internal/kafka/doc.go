// Package kafka is the only package that talks to Kafka. It wraps segmentio/kafka-go in
// the few operations that the other packages need, and works around that library's
// limitations in one place.
//
// New returns a *Cluster, which is safe for concurrent use. The other packages declare the
// small interfaces that they need, and *Cluster satisfies these interfaces. Package kafka
// knows nothing about orders. Package recordbatch encodes and decodes record batches. Package login
// has the login by tokens.
//
// Every request, also those of the library's Client, goes through exchange: it takes a connection to
// the broker that must answer, and sends the request once. The library encodes the request; package kmsg
// encodes the few that the library does not know, and appends, whose batches the library would copy.
// The callers give the error codes of answers to transport.judge.
//
//	cluster.go    the options, and what the cluster looks like
//	transport.go  send a request to the right broker; judge the error codes of its answer
//	topology.go   the partitions, leaders and ids of the topics in use, and the coordinators of groups
//	brokers.go    the connections to each broker, and brokers that hang
//	connect.go    one new connection: TCP, TLS and SASL within one deadline
//	codec.go      encode a request, by the client library or by package kmsg
//	security.go   TLS and SASL, for every connection
//	access.go     the explanation of a refused request or connection
//	errors.go     the meaning of error codes, and what brokers other than Kafka's cannot do
//	fetch.go      read one partition, into memory that is used again
//	identity.go   detect that a log was replaced since it was last read
//	append.go     one produce request to one partition, or idempotent appends until they are acked
//	group.go      group membership: join, assign partitions, leave
//	generation.go the partitions of a member between two rebalances, and their commits
//	heartbeats.go when each membership of a process sends its next heartbeat
//	group_start.go where each partition of a membership begins
//	commits.go    the members of a group, what it has committed, what waits above it, and commits without members
//	static.go     memberships that a process gets back when it is started again
//	topics.go     the names of topics, their required settings, and the differences
//	admin.go      describe, create, change and delete topics
//	foreign.go    topics with records of others, which are not changed, and topics that this user may not see
//	offsets.go    the offsets of many partitions, with as few requests as possible
//	window.go     the records that were appended between two moments, a few of them, or only the first one
package kafka
