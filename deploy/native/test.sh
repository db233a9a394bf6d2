#!/usr/bin/env bash
# Runs all tests, including those with real servers. It starts the servers that the
# environment does not name (up.sh) in a temporary folder, runs go test, and always
# stops the servers again. Concurrent runs do not disturb each other.
#
# usage: test.sh [go test argument ...]
#   RING=all         everything that make test-all tests: every scenario on every database, every variant and seed
#   REQUIRE_REAL=1   tests fail, not skip, if a server is missing
#   PACKAGES=...     these packages only; default: ./...
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$here/../.."

# Tests on real servers mostly wait, so more run at a time than there are processors: fewer beside other work, where
# servers answer after seconds if too many tests starve each other.
processors=$(getconf _NPROCESSORS_ONLN)
parallel=$((4 * processors))
if awk -v n="$processors" '$1 < n {exit 1}' /proc/loadavg 2>/dev/null; then parallel=$((2 * processors)); fi
if [[ ${RING-} == all ]]; then parallel=$((2 * processors)); fi # random scenarios keep the processors busy
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
  if [[ $tests ]] && kill -INT -- "-$tests" 2>/dev/null; then wait "$tests" || true; fi # it says which tests ran
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
go list -export -test -deps "${packages[@]}" >/dev/null 2>&1 &
compiler=$!
choose_servers
# Tests start databases of their own, and a secured Kafka.
if [[ $ORDERCLOSE_SERVERS == native ]]; then "$here/install.sh" mariadb mysql postgresql pgbouncer kafka openssl; fi
# Tests of examples/clients need them. Without them these tests are skipped.
if [[ $ORDERCLOSE_SERVERS == native ]]; then
  for optional in jdbc clients; do
    "$here/install.sh" "$optional" || note "testing without $optional"
  done
fi
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
gotestsum=${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/gotestsum-1.13.0/gotestsum
[[ -x $gotestsum ]] || GOBIN=${gotestsum%/*} go install gotest.tools/gotestsum@v1.13.0

# Below DIR, so that finish finds the servers of a killed test.
mkdir "$dir/tmp"
export TMPDIR=$dir/tmp

# run_tests runs all tests. It prints a line for each package that ends, and at the end what failed tests said; with -v all output as it comes. One package
# more than there are processors runs at a time, because most packages mostly wait for a server or for the linker. It does not vet, which make lint does.
run_tests() {
  local format=pkgname hide=skipped
  if [[ " $* " == *" -v "* ]]; then format=standard-verbose hide=skipped,output; fi
  note "running the tests, $parallel at a time in a package"
  exec "$gotestsum" --format "$format" --format-icons text --format-hide-empty-pkg --hide-summary "$hide" --jsonfile-timing-events "$dir/times" -- \
    -vet=off -count=1 -exec "$here/exec.sh" -p $((processors + 1)) -parallel "$parallel" -timeout 40m "${packages[@]}" "$@"
}

set -m # a process group of its own, so that finish reaches all processes in it
run_tests "$@" </dev/null &
tests=$!
set +m
code=0
wait "$tests" || code=$?
tests=
note "the slowest tests"
"$gotestsum" tool slowest --jsonfile "$dir/times" --num 20 >&2
exit "$code"
