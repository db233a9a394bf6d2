// Package testkit has what stands in for servers and networks in tests.
//
//	log.go             Log: a Kafka log in memory, for the tests of the parts that serve partitions
//	appends.go         Appends: the Appender of a fake log
//	store.go           Store: a closing Store in memory, which fails, hangs or takes its time
//	start.go           runs a part in the background
//	metrics.go         reads the metrics of a part
//	heap.go            MostHeap: the most memory that a part uses
//	logbuffer.go       LogBuffer: collects output that several goroutines write
//	databasefaults.go  Faults: the failures of a database, as data, and when they strike
//	database.go        the database/sql driver that Faults puts in front of another
//	listener.go        Listener: a network in memory with one listener
//	proxy.go           Proxy: a TCP proxy that injects the faults of networks
//	link.go            one connection through the proxy, and its two directions
//	faults.go          the faults of any network, and what happens to topics and commits: those of random rounds, of tests and of the game day
//
// The tests of the whole pipeline are below it:
//
//	simulation   random faults, in virtual time
//	realtest     faults on real servers, and the game day
//	power        cuts the power of disks, for chaosreal
//	chaosreal    the program of make chaos-real: random faults on real servers, while orders are created
//	mutants      code that is broken on purpose: a test must fail
//	checker      what a run has broken, by Kafka and the database alone
//	storetest    what every database must do
//
// What they use, and what tests share:
//
//	must, expect   one-line checks: the first ends a test, the second lets it go on
//	scenario       shops, orders, payments and databases of a run, and its topics.yaml of seconds
//	rights         the ACLs and privileges that each part needs
//	servers        starts, stops and kills real servers, and finds free ports
//	process        starts, signals and ends programs, and reads what they use
//	shoplocks      transactions of a shop that lock rows in any order, beside closes
//	shoptest       plays the statements of a public shop against closes
//	tracing        a module of its own that finds the spans of an order in a collector
//	transactions   a module of its own that lends transactions of sqlx, ent and pgx to the store
//	measure        statistics of the benchmarks
//
// What runs the tests:
//
//	ring       which tests belong to make unit, make test and make test-all
package testkit
