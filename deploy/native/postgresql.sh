#!/usr/bin/env bash
# Starts and stops one PostgreSQL on 127.0.0.1; user postgres, no password. It returns when
# the server accepts connections. Further arguments are postgres', such as
# -c max_connections=300. A server that is stopped and started again keeps its data.
#
# usage: postgresql.sh start DIR PORT [postgres argument ...]
#        postgresql.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start_native() {
  local dir=$1 port=$2 programs above user=()
  programs=$(postgresql_programs) || die "no PostgreSQL: run deploy/native/install.sh postgresql"
  if ((EUID == 0)); then # PostgreSQL refuses to run as root
    user=(setpriv --reuid=postgres --regid=postgres --clear-groups)
    # That user must reach its data: up to a folder that anyone may enter.
    above=$dir
    while [[ -O $above && ! -k $above && $above != / ]]; do
      chmod o+x "$above"
      above=$(dirname -- "$above")
    done
    mkdir -p "$dir/files"
    chown postgres: "$dir/files"
  else
    mkdir -p "$dir/files"
  fi
  if [[ ! -e $dir/files/data/PG_VERSION ]]; then
    (cd "$dir/files" && "${user[@]}" "$programs/initdb" --pgdata=data --username=postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8) \
      >"$dir/log" 2>&1 || { cat "$dir/log" >&2 && die "cannot set up $dir/files/data"; }
  fi
  rm -f "$dir/files/data/postmaster.pid" # of a server that was killed; its process may not be reaped yet
  launch "$dir" "$port" 'ready to accept connections' \
    "${user[@]}" "$programs/postgres" -D "$dir/files/data" -p "$port" -c unix_socket_directories= \
    -c listen_addresses=127.0.0.1 -c max_connections=200 "${@:3}"
}

start_container() { native_only; }

control "$@"
