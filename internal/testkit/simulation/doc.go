// Package simulation has tests that run the whole system in one process: embedded Kafka (kfake), Redis and SQLite, a shop, and all parts of the
// pipeline, in a bubble of testing/synctest. Time in a bubble is simulated, so hours take seconds, and all decisions about faults are drawn from a seed.
// Nearly every test ends with the checker (testkit/checker), which compares Kafka and the database with what was promised.
//
// There are two kinds of tests:
//
//   - A test on a rig plays one case. A rig (rig_test.go) has the servers, the shop, and parts
//     that the test starts and stops as an operator does. In causes_test.go, a scene is a function
//     that prepares a rig so that a sweep finds one order for a known cause.
//   - A chaos test plays random worlds. A world is one minute of simulated time with up to eleven
//     faults, and the time after it that the world needs to become idle. Then the promises must
//     hold for every order. A plan is a world as data: its configuration and its events, drawn
//     from a seed. An event is one order or one fault.
//
// The files of a world:
//
//	chaos_test.go          the test of a few worlds, and of one world (CHAOS_SEED)
//	chaos_driver_test.go   make chaos: many worlds in worker processes; leaves out events of a failing world
//	chaos_plan_test.go     draws a plan from a seed
//	chaos_play_test.go     the world: plays a plan
//	chaos_judge_test.go    waits until nothing is left to do, and checks the promises
//	chaos_appends_test.go  checks how often records are repeated, and how many hops they take
//	chaos_process_test.go  the processes of a world, with their clocks and networks
//	chaos_net_test.go      the network of a process: cut, stalled, half-open
//
// The kinds of events:
//
//	chaos_orders_test.go   orders: how they are published, and what happens to them later
//	chaos_kinds_test.go    faults of processes and of their connections
//	chaos_kafka_test.go    faults of brokers and topics, and records that cannot be read
//	chaos_corrupt_test.go  damaged bytes on the way from a broker
//	chaos_others_test.go   faults of the database and Redis, and wrong clocks
//	chaos_reload_test.go   changes of topics.yaml, some of them mistakes
//	chaos_repeats_test.go  replays and sweeps by operators
//	chaos_service_test.go  the shop's service that closes orders or answers for payments
//	chaos_ghosts_test.go   not a fault: expires silent group members, which kfake does not always do
//
// The package has no code outside its tests. docs/reliability.md says how to run it and how to play a failing seed again.
package simulation
