// Package realtest contains the tests that need real servers: Apache Kafka, MariaDB or MySQL, and Redis. The environment names the servers. The tests
// run the production binary in processes of its own, so that they can kill it. They use a database, topics and a Redis key of their own, and drop them
// at the end.
//
// The files gameday_*_test.go play incidents: each makes alerts fire in a real Prometheus, and
// ends by what docs/runbook.md says. They run with GAMEDAY=1 only; make test-ops sets it.
//
// placements_test.go says on which databases each test runs, in make test and in make test-all, and what it alone proves.
//
// Without the environment variables the tests are skipped; with REQUIRE_REAL=1 they fail. make test sets REQUIRE_REAL and starts the servers.
package realtest
