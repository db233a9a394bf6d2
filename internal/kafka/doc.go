// Package kafka is the only package that talks to Kafka. It wraps segmentio/kafka-go in
// the few operations that the other packages need, and works around that library's
// limitations in one place.
//
// New returns a *Cluster, which is safe for concurrent use. The other packages declare the
// small interfaces that they need, and *Cluster satisfies these interfaces. Package kafka
// knows nothing about orders. Package recordbatch encodes and decodes record batches.
//
//	cluster.go    connections, and what the cluster looks like
//	fetch.go      read one partition
//	rawfetch.go   one fetch request and its answer, as bytes
//	identity.go   detect that a log was replaced since it was last read
//	ownrequest.go requests of versions that the client library does not know
//	append.go     one produce request to one partition
//	idempotent.go idempotent appends, retried until they are acked
//	coalesce.go   combine many small appends into few requests
//	group.go      group membership: the partitions of this process, and their commits
//	group_start.go where each partition of a membership begins
//	membership.go confirm a partition, and leave a group
//	memory.go     reuse the memory of fetches and of batches
//	clock.go      an estimate of the brokers' clock
//	topics.go     the required settings of topics, and the differences
//	admin.go      describe, create, change and delete topics
//	foreign.go    topics with records of others, which are not changed
//	offsets.go    the offsets of many partitions, with as few requests as possible
//	offsetsrequest.go one such request to one leader
//	window.go     the records that were appended between two moments
//	commits.go    what a group has committed, what waits above it, and commits without members
//	members.go    the members of a group, and their partitions
//	peek.go       one record, without the records after it
//	glance.go     a few records, and the offsets that a commit leaves open
//	idle.go       whether a topic exists, has waiting records, or was used since a time
//	errors.go     the meaning of error codes
//	connect.go    one new connection: TCP, TLS and SASL within one deadline
//	reauthenticate.go authenticate again before a broker ends the session
//	peers.go      brokers that hang, and their connections
//	security.go   TLS and SASL, for every connection
//	access.go     the explanation of a refused request or connection
//	transport.go  the transport of all requests: it finds the missing ACLs in every answer
//	topology.go   the partitions and leaders of the topics in use
//	coordinators.go the coordinators of groups
//	route.go      send each request to the right broker
//	lookup.go     request the metadata of topics by name
//	listing.go    the topics with a prefix, without the metadata of all others
//	visible.go    check topics without the permission to see all of them
package kafka
