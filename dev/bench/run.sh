#!/usr/bin/env bash
# Builds the bench and runs it on the broker that ORDERCLOSE_KAFKA_BROKERS names.
# Without the variable it starts a broker in a temporary folder, and always stops it
# again. README.md in this folder describes the measurements.
#
# usage: run.sh relay|idle|close|payments|outbox|sweep
#   SYNC=always   brokers write each record to disk before they acknowledge it
#   SYNC=default  as topics apply does for one broker: so in delay topics, and each 1,000 records of a close topic
#   QUICK=1       less of everything, within a minute
#   PROFILE=DIR   a CPU profile of each process that moves records, in DIR
#   PROFILE=1     with close: what the databases do for a close, by statement
. "$(dirname -- "${BASH_SOURCE[0]}")/../../deploy/native/lib.sh"
native=$here
if [[ ${PROFILE:-} && ${1:-} != close ]]; then PROFILE=$(realpath -m -- "$PROFILE"); fi
cd "$native/../../dev/bench"

bench=
profiled= # set if the databases were started with statistics of statements

# finish ends the bench if it still runs: it takes its topics with it. Then the broker.
# shellcheck disable=SC2317 # called by trap
finish() {
  trap '' INT TERM HUP
  if [[ $bench ]] && kill -TERM "$bench" 2>/dev/null; then wait "$bench" || true; fi
  if [[ $profiled ]]; then "$native/mariadb.sh" stop "$dir/mariadb" && "$native/postgresql.sh" stop "$dir/postgresql"; fi
  "$native/down.sh" "$dir"
}

dir=$(own_dir "$(mktemp -d "${TMPDIR:-/tmp}/orderclose-bench.XXXXXX")")
touch "$dir/.orderclose"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Naming a server keeps up.sh from starting it.
needed=(ORDERCLOSE_KAFKA_BROKERS)
unneeded=(ORDERCLOSE_REDIS_URL=unused)
if [[ $1 == close || $1 == payments ]]; then needed+=(ORDERCLOSE_MYSQL_DSN); else unneeded+=(ORDERCLOSE_MYSQL_DSN=unused); fi
if [[ $1 == close || $1 == payments || $1 == outbox || $1 == sweep ]]; then
  needed+=(ORDERCLOSE_DB_DSN ORDERCLOSE_POSTGRES_DSN)
else
  unneeded+=(ORDERCLOSE_DB_DSN=unused ORDERCLOSE_POSTGRES_DSN=unused)
fi
# A shop of millions of orders has servers that keep them in memory.
if [[ $1 == sweep ]]; then export MARIADB_BUFFER_POOL=${MARIADB_BUFFER_POOL:-2G} POSTGRESQL_SHARED_BUFFERS=${POSTGRESQL_SHARED_BUFFERS:-2GB}; fi
if [[ $1 == close && ${PROFILE:-} ]]; then
  profiled=1
  port=$(free_port)
  "$native/mariadb.sh" start "$dir/mariadb" "$port" --performance-schema=ON
  export ORDERCLOSE_DB_DSN="root@tcp(127.0.0.1:$port)/"
  port=$(free_port)
  "$native/postgresql.sh" start "$dir/postgresql" "$port" -c shared_preload_libraries=pg_stat_statements
  export ORDERCLOSE_POSTGRES_DSN="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
fi
lines=$(env "${unneeded[@]}" "$native/up.sh" "$dir/servers")
for name in "${needed[@]}"; do eval "$(grep "^export $name=" <<<"$lines")"; done
go build -o "$dir/bench" .
if [[ ${1:-} == idle ]]; then # it watches the program itself
  go build -C ../.. -o "$dir/orderclose" ./cmd/orderclose
  set -- "$1" "$dir/orderclose"
fi

"$dir/bench" "$@" </dev/null &
bench=$!
code=0
wait "$bench" || code=$?
bench=
exit "$code"
