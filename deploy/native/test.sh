#!/usr/bin/env bash
# Runs all tests, including those with real servers. It starts the servers that the
# environment does not name (up.sh) in a temporary folder, runs go test, and always
# stops the servers again. Concurrent runs do not disturb each other.
#
# usage: test.sh [go test argument ...]
#   RACE=1           with the race detector, as CI: about twice as long
#   REQUIRE_REAL=1   tests fail, not skip, if a server is missing
#   PACKAGES=...     these packages only; default: ./...
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$here/../.."

race=()
if [[ ${RACE:-0} != 0 ]]; then race=(-race -cpu 1); fi
# Beside other work fewer tests run at a time. Eight starved each other: the load rose to 72, and servers answered after
# seconds.
parallel=8
if awk -v n="$(getconf _NPROCESSORS_ONLN)" '$1 < n {exit 1}' /proc/loadavg 2>/dev/null; then parallel=4; fi
# The packages that take longest start first.
packages=(./internal/testkit/realtest ./internal/store ./internal/testkit/simulation ./...)
if [[ ${PACKAGES-} ]]; then read -ra packages <<<"$PACKAGES"; fi
compiler=
tests=

# finish ends the tests if they still run, and every server, also those that a test
# has started and left.
# shellcheck disable=SC2317 # called by trap
finish() {
  trap '' INT TERM HUP
  if [[ $compiler ]]; then kill "$compiler" 2>/dev/null || true; fi
  if [[ $tests ]] && kill -TERM -- "-$tests" 2>/dev/null; then wait "$tests" || true; fi
  "$here/down.sh" "$dir"
}

dir=$(own_dir "$(mktemp -d "$(quick_dir)/orderclose-test.XXXXXX")")
touch "$dir/.orderclose"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Compilers and tests collect garbage less often. With Go's default, random scenarios took 121 s of CPU instead of 90 s.
export GOGC=${GOGC:-400}
# Packages are compiled while servers are installed and started. What does not compile, go test reports.
go list -export -test -deps ${race[0]+"${race[0]}"} "${packages[@]}" >/dev/null 2>&1 &
compiler=$!
choose_servers
# Tests start databases of their own, and a secured Kafka.
if [[ $ORDERCLOSE_SERVERS == native ]]; then "$here/install.sh" mariadb mysql postgresql pgbouncer kafka openssl; fi
# Tests of change records and of examples/clients need them. Without them these tests are skipped.
if [[ $ORDERCLOSE_SERVERS == native ]]; then
  for optional in debezium clients; do
    "$here/install.sh" "$optional" || note "testing without $optional"
  done
fi
if [[ ${race[*]} ]]; then "$here/install.sh" gcc; fi
"$here/install.sh" promtool amtool
# A run is too short for the JVM's second compiler and its parallel collector to pay off.
export KAFKA_HEAP_OPTS=${KAFKA_HEAP_OPTS:--Xmx1g -XX:+UseSerialGC -XX:TieredStopAtLevel=1}
# Tests create and drop some 600 databases on MySQL. These settings make that cheaper. A killed server
# still has what was committed. The last three alone save a third: the tests of internal/store took MySQL 122 s of CPU in place of 185 s.
export MYSQL_ARGS=${MYSQL_ARGS:---innodb-flush-log-at-trx-commit=2 --innodb-doublewrite=0 --innodb-stats-persistent=0 --innodb-file-per-table=0 --innodb-adaptive-hash-index=0}
lines=$("$here/up.sh" "$dir/servers")
eval "$lines"

note "compiling"
wait "$compiler" || true
compiler=
go build -o "$dir/progress" ./internal/testkit/progress

# Below DIR, so that finish finds the servers of a killed test.
mkdir "$dir/tmp"
export TMPDIR=$dir/tmp

# run_tests runs all tests. There are fewer random scenarios of internal/testkit/simulation than go test plays. The race
# detector's run plays even fewer, so it is followed by one with all of them.
run_tests() {
  local code=0
  # More tests in parallel than there are cores, in more packages: tests on real servers mostly
  # wait. -cpu 1 under the race detector: it crashes if two goroutines of a bubble
  # of testing/synctest run timers at the same time (seen with Go 1.26). It finds races
  # nevertheless, because it compares the order of events, not their times.
  note "running the tests${race[*]:+ with the race detector}"
  FEW_WORLDS=1 shown_test "${race[@]}" -count=1 -p 2 -parallel "$parallel" -timeout 40m "${packages[@]}" "$@" || code=$?
  if [[ ${race[*]} ]]; then
    note "running the random scenarios again, without the race detector"
    shown_test -count=1 -timeout 40m ./internal/testkit/simulation "$@" || code=$?
  fi
  return "$code"
}

# shown_test is go test that says what it does while it runs. It does not vet, which make lint does.
shown_test() { go test -json -vet=off "$@" | "$dir/progress" "$@"; }

set -m # a process group of its own, so that finish reaches all processes in it
run_tests "$@" </dev/null &
tests=$!
set +m
code=0
wait "$tests" || code=$?
tests=
exit "$code"
