#!/usr/bin/env bash
# Starts and stops one MariaDB on 127.0.0.1; user root, no password. It returns
# when the server takes connections. Further arguments are mariadbd's, such as
# --default-time-zone=+08:00. Stopped and started again, a native server has its
# data still. MARIADB_BUFFER_POOL is how much of its tables it keeps in memory, such
# as 2G; 256M is enough for the tests.
#
# usage: mariadb.sh start DIR PORT [mariadbd argument ...]
#        mariadb.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Durability is left at its defaults: every commit reaches the disk.
common=(
  --character-set-server=utf8mb4
  --collation-server=utf8mb4_general_ci
  --innodb-buffer-pool-size="${MARIADB_BUFFER_POOL:-256M}"
  --max-connections=200
  --skip-name-resolve
)

start_native() {
  local dir=$1 port=$2 user=() program
  for program in mariadbd mariadb-install-db my_print_defaults; do
    command -v "$program" >/dev/null || die "no $program: run deploy/native/install.sh mariadb"
  done
  if ((EUID == 0)); then user=(--user=root); fi
  if [[ ! -e $dir/data ]]; then
    rm -rf -- "$dir/data.new" "$dir/tmp"
    mkdir -p -- "$dir/tmp" # of its own: two that set up at once would remove each other's files
    # Not told its user: it would give away files of the system's own MariaDB.
    mariadb-install-db --no-defaults --auth-root-authentication-method=normal \
      --skip-test-db --datadir="$dir/data.new" --tmpdir="$dir/tmp" >"$dir/log" 2>&1 || { cat "$dir/log" >&2 && die "cannot set up $dir/data"; }
    mv "$dir/data.new" "$dir/data" # whole or not at all
  fi
  # A relative socket stands in the data folder; a full path is soon too long for a socket.
  launch "$dir" "$port" 'ready for connections' \
    mariadbd --no-defaults "${user[@]}" --datadir="$dir/data" --tmpdir="$dir/tmp" --socket=mariadbd.sock \
    --bind-address=127.0.0.1 --port="$port" "${common[@]}" "${@:3}"
}

start_container() {
  container_launch "$1" "$2" 3306 container_ready \
    --env MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1 -- mariadb:10.11 "${common[@]}" "${@:3}"
}

# The image runs a first server to set itself up, so its log says "ready" too early.
container_ready() { "$1" exec "$2" healthcheck.sh --connect --innodb_initialized >/dev/null 2>&1; }

control "$@"
