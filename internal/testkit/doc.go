// Package testkit has what stands in for servers and networks in tests.
//
//	log.go             Log: a Kafka log in memory, for the tests of the parts that serve partitions
//	start.go           runs a part in the background
//	metrics.go         reads the metrics of a part
//	logbuffer.go       LogBuffer: collects output that several goroutines write
//	databasefaults.go  Faults: the failures of a database, as data, and when they strike
//	database.go        the database/sql driver that Faults puts in front of another
//	listener.go        Listener: a network in memory with one listener
//	proxy.go           Proxy: a TCP proxy that injects the faults of networks
//	link.go            one connection through the proxy, and its two directions
//
// Its subfolders have what judges a run of the whole pipeline (checker), the suite that each kind of
// database must pass (storetest), a checkout that makes orders (scenario), real servers (servers) and
// processes (process), the numbers of benchmarks (measure), and the tests of the whole pipeline: in virtual time (simulation), on real servers
// (realtest), and with code that is broken on purpose (mutants).
package testkit
