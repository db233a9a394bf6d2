#!/usr/bin/env bash
# Starts and stops one PgBouncer on 127.0.0.1, before the PostgreSQL that listens on SERVER. It
# accepts every user that the server accepts without a password. MODE is its pool_mode:
# session, transaction or statement.
#
# usage: pgbouncer.sh start DIR PORT SERVER MODE [key=value ...]
#        pgbouncer.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start_native() {
  local dir=$1 port=$2 program
  program=$(command -v pgbouncer) || die "no pgbouncer: run deploy/native/install.sh pgbouncer"
  as_postgres "$dir"
  echo '"postgres" ""' >"$dir/files/users"
  printf '%s\n' '[databases]' "* = host=127.0.0.1 port=$3" '[pgbouncer]' 'listen_addr = 127.0.0.1' "listen_port = $port" 'unix_socket_dir =' \
    'auth_type = trust' "auth_file = $dir/files/users" "pool_mode = $4" "${@:5}" >"$dir/files/pgbouncer.ini"
  chmod -R o+rX "$dir/files"
  launch "$dir" "$port" 'process up' "${user[@]}" "$program" "$dir/files/pgbouncer.ini"
}

start_container() { native_only; }

control "$@"
