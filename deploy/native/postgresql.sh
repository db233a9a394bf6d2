#!/usr/bin/env bash
# Starts and stops one PostgreSQL on 127.0.0.1; user postgres, no password. It returns when
# the server accepts connections. Further arguments are postgres', such as
# -c timezone=Asia/Shanghai. A native server that is stopped and started again keeps its data.
# POSTGRESQL_VERSION=17 starts that release, which install.sh gets by Maven, in place of Debian's.
# POSTGRESQL_SHARED_BUFFERS is the size of its own memory for pages, such as 2GB; default 256MB.
#
# usage: postgresql.sh start DIR PORT [postgres argument ...]
#        postgresql.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

common=(-c max_connections=200 -c shared_buffers="${POSTGRESQL_SHARED_BUFFERS:-256MB}")

start_native() {
  local dir=$1 port=$2 programs
  programs=$(postgresql_programs) || die "no PostgreSQL: run deploy/native/install.sh postgresql"
  as_postgres "$dir"
  if [[ ! -e $dir/files/data/PG_VERSION ]]; then
    (cd "$dir/files" && "${user[@]}" "$programs/initdb" --pgdata=data --username=postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8) >"$dir/log" 2>&1 ||
      { cat "$dir/log" >&2 && die "cannot set up $dir/files/data"; }
  fi
  echo INT >"$dir/signal" # SIGTERM would wait until the last client has gone
  rm -f "$dir/files/data/postmaster.pid" # of a server that was killed; its process may not be reaped yet
  launch "$dir" "$port" 'ready to accept' \
    "${user[@]}" "$programs/postgres" -D "$dir/files/data" -p "$port" -c unix_socket_directories= \
    -c listen_addresses=127.0.0.1 "${common[@]}" "${@:3}"
}

start_container() {
  container_launch "$1" "$2" 5432 container_ready \
    --env POSTGRES_HOST_AUTH_METHOD=trust -- "postgres:${POSTGRESQL_VERSION:-15}" "${common[@]}" "${@:3}"
}

# The image first runs a server to set itself up, which accepts no TCP connections.
container_ready() { "$1" exec "$2" pg_isready --quiet --host=127.0.0.1 --username=postgres >/dev/null 2>&1; }

control "$@"
