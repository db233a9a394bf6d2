#!/usr/bin/env bash
# Starts and stops one MariaDB on 127.0.0.1, the current one or with OLD_SERVERS=1 an older one (lib.sh); user root, no password. It returns when
# the server accepts connections. Further arguments are mariadbd's, such as
# --default-time-zone=+08:00. A native server that is stopped and started again keeps
# its data. MARIADB_BUFFER_POOL is the size of its buffer pool, such as 2G; the
# default 256M is enough for the tests.
#
# usage: mariadb.sh start DIR PORT [mariadbd argument ...]
#        mariadb.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Durability has its defaults: every commit is written to disk.
common=(
  --character-set-server=utf8mb4
  --collation-server=utf8mb4_general_ci
  --innodb-buffer-pool-size="${MARIADB_BUFFER_POOL:-256M}"
  --max-connections=200
  --skip-name-resolve
)

start_native() {
  local dir=$1 port=$2 user=() base=() program
  use_mariadb
  if has_current mariadb; then base=("--basedir=$(current_home mariadb)"); fi
  for program in mariadbd mariadb-install-db my_print_defaults; do
    command -v "$program" >/dev/null || die "no $program: run deploy/native/install.sh mariadb"
  done
  if ((EUID == 0)); then user=(--user=root); fi
  if [[ ! -e $dir/data ]]; then
    rm -rf -- "$dir/data.new" "$dir/tmp"
    mkdir -p -- "$dir/tmp" # a folder of its own: two concurrent set-ups would remove each other's files
    # Without --user: it would change the owner of files of the system's own MariaDB.
    mariadb-install-db --no-defaults "${base[@]}" --auth-root-authentication-method=normal \
      --skip-test-db --datadir="$dir/data.new" --tmpdir="$dir/tmp" >"$dir/log" 2>&1 || { cat "$dir/log" >&2 && die "cannot set up $dir/data"; }
    mv "$dir/data.new" "$dir/data" # complete or not at all
  fi
  # The relative socket path is in the data folder; a full path may be too long for a
  # socket.
  launch "$dir" "$port" 'ready for connections' \
    mariadbd --no-defaults "${base[@]}" "${user[@]}" --datadir="$dir/data" --tmpdir="$dir/tmp" --socket=mariadbd.sock \
    --bind-address=127.0.0.1 --port="$port" "${common[@]}" "${@:3}"
}

start_container() {
  local image=mariadb:11.8
  if [[ ${OLD_SERVERS-} ]]; then image=mariadb:10.11; fi
  container_launch "$1" "$2" 3306 container_ready \
    --env MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1 -- "$image" "${common[@]}" "${@:3}"
}

# The image first runs a server to set itself up, so its log says "ready" too early.
container_ready() { "$1" exec "$2" healthcheck.sh --connect --innodb_initialized >/dev/null 2>&1; }

control "$@"
