// Package kafka is the only package that talks to Kafka. It wraps segmentio/kafka-go in
// the few operations that the other packages need, and works around that library's
// limitations in one place.
//
// New returns a *Cluster, which is safe for concurrent use. The other packages declare the
// small interfaces that they need, and *Cluster satisfies these interfaces. Package kafka
// knows nothing about orders. Package recordbatch encodes and decodes record batches. Package login
// has the login by tokens, and package reads what reads parts of topics.
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
//	access.go     the meaning of error codes, what brokers other than Kafka's cannot do, and the explanation of a refused request
//	fetch.go      read one partition, into memory that is used again; detect that its log was replaced
//	append.go     one produce request to one partition, or idempotent appends until they are acked
//	group.go      group membership: join, assign partitions, leave
//	generation.go the partitions of a member between two rebalances, where each begins, and their commits
//	commits.go    the members of a group, what it has committed, what waits above it, and commits without members
//	static.go     memberships that a process gets back when it is started again, and when each sends its next heartbeat
//	topics.go     the names of topics, their required settings, and the differences; those with records of others, or that this user may not see
//	admin.go      describe, create, change and delete topics
//	offsets.go    the offsets of many partitions, with as few requests as possible
package kafka
