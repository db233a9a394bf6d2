#!/usr/bin/env bash
# Starts and stops one MySQL on 127.0.0.1, the current one or with OLD_SERVERS=1 an older one (lib.sh); user root, no password. It returns
# when the server accepts connections. Further arguments are mysqld's, such as
# --default-time-zone=+08:00. A native server that is stopped and started again keeps
# its data. The older one is natively 8.0.15, which does not enforce CHECK and whose TLS
# is too old for Go. MYSQL_ARGS has more arguments, separated by spaces, for each server that is started.
#
# usage: mysql.sh start DIR PORT [mysqld argument ...]
#        mysql.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Durability has its defaults, as with MariaDB. The binary log, which MySQL writes by
# default, and the performance schema are not needed.
common=(
  --character-set-server=utf8mb4
  --collation-server=utf8mb4_general_ci
  --innodb-buffer-pool-size=256M
  --max-connections=200
  --skip-name-resolve
  --skip-log-bin
  --performance-schema=OFF
  --mysqlx=OFF
)
read -ra more <<<"${MYSQL_ARGS-}"
common+=("${more[@]}")

start_native() {
  local dir=$1 port=$2 home program
  home=$(mysql_home)
  [[ -x $home/bin/mysqld ]] || die "no MySQL in $home: run deploy/native/install.sh mysql"
  # lib may contain a library under the name that this mysqld expects.
  program=(env "LD_LIBRARY_PATH=$home/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$home/bin/mysqld" --no-defaults "--basedir=$home" "--lc-messages-dir=$home/share" --secure-file-priv=)
  if ((EUID == 0)); then program+=(--user=root); fi
  mkdir -p -- "$dir/tmp"
  if [[ ! -e $dir/data ]]; then
    rm -rf -- "$dir/data.new"
    # Without name resolution, root@localhost can only connect by the socket.
    printf '%s\n' "CREATE USER root@'127.0.0.1';" "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;" >"$dir/init.sql"
    "${program[@]}" --initialize-insecure --datadir="$dir/data.new" --tmpdir="$dir/tmp" \
      --init-file="$dir/init.sql" >"$dir/log" 2>&1 || { cat "$dir/log" >&2 && die "cannot set up $dir/data"; }
    mv "$dir/data.new" "$dir/data" # complete or not at all
  fi
  # The relative socket path is in the data folder; a full path may be too long for a
  # socket.
  launch "$dir" "$port" 'ready for connections' \
    "${program[@]}" --datadir="$dir/data" --tmpdir="$dir/tmp" --socket=mysqld.sock --pid-file=mysqld.pid \
    --bind-address=127.0.0.1 --port="$port" "${common[@]}" "${@:3}"
}

start_container() {
  local image=mysql:9.7
  if [[ ${OLD_SERVERS-} ]]; then image=mysql:8.0; fi
  container_launch "$1" "$2" 3306 container_ready \
    --env MYSQL_ALLOW_EMPTY_PASSWORD=1 -- "$image" "${common[@]}" "${@:3}"
}

# The image first runs a server to set itself up, which accepts no TCP connections.
container_ready() { "$1" exec "$2" mysqladmin ping --silent --protocol=tcp --host=127.0.0.1 >/dev/null 2>&1; }

control "$@"
