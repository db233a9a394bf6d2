// Package realtest holds the tests that need real servers: Apache Kafka,
// MariaDB and Redis, as the environment names them. They run the production
// binary as processes of their own, so that they can kill them, in a database,
// topics and a Redis key of their own, which they drop at the end.
//
// Without the variables they are skipped; with REQUIRE_REAL=1 they fail instead.
// make test sets it, and brings the servers up.
package realtest
