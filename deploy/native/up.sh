#!/usr/bin/env bash
# Starts a Kafka broker, a MariaDB, a MySQL, a PostgreSQL and a Redis, except those that the
# environment already names, and prints their variables on stdout:
#
#     eval "$(make -s up)"
#
# They listen on free ports of 127.0.0.1. Their data are in DIR (default:
# ${TMPDIR:-/tmp}/orderclose-up-<uid>). DIR/env contains the same lines, each value
# in single quotes, for programs that run without these variables. Servers that already
# run in DIR are kept. If a server does not start, the servers that this call has
# started are stopped again. MySQL and PostgreSQL are further databases of the tests: only
# tests read ORDERCLOSE_MYSQL_DSN and ORDERCLOSE_POSTGRES_DSN.
#
# The servers run in containers if docker or podman works, otherwise natively;
# ORDERCLOSE_SERVERS=native or containers overrides this.
#
# usage: up.sh [DIR]        (down.sh [DIR] stops them)
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
exec 3>&1 >&2 # only the variables go to the real stdout
trap 'exit 1' INT TERM HUP

dir=${1:-$(default_dir)}
declare -A variable=([kafka]=ORDERCLOSE_KAFKA_BROKERS [mariadb]=ORDERCLOSE_DB_DSN [mysql]=ORDERCLOSE_MYSQL_DSN
  [postgresql]=ORDERCLOSE_POSTGRES_DSN [redis]=ORDERCLOSE_REDIS_URL)
wanted=() # servers that the environment does not name
starting=() # servers that this call starts
jobs=() # the starter process of each

# address KIND prints the address of the server of KIND in DIR, in the form of its
# variable.
address() {
  local port
  port=$(<"$dir/$1/port")
  case $1 in
  kafka) echo "127.0.0.1:$port" ;;
  mariadb | mysql) echo "root@tcp(127.0.0.1:$port)/" ;;
  postgresql) echo "postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable" ;;
  redis) echo "redis://127.0.0.1:$port/0" ;;
  esac
}

print_lines() {
  local kind name value
  for kind in kafka mariadb mysql postgresql redis; do
    name=${variable[$kind]}
    value=${!name:-$(address "$kind")}
    printf "export %s='%s'\n" "$name" "${value//\'/\'\\\'\'}"
  done
}

# check_named VARIABLE rejects a loopback port on which no process listens. Usually
# an earlier up set the variable in this shell, and its servers were stopped since.
check_named() {
  local value=${!1} port
  if [[ $value =~ 127\.0\.0\.1:([0-9]+) ]]; then
    port=${BASH_REMATCH[1]}
    answers "$port" || die "$1 names $value, but nothing answers on port $port; unset $1 to have a server started"
  fi
}

# start KIND tries a second port if another process has taken the first meanwhile.
start() {
  "$here/$1.sh" start "$dir/$1" "$(free_port)" && return
  grep -qsi 'already \(in use\|allocated\)' "$dir/$1/log" && "$here/$1.sh" start "$dir/$1" "$(free_port)"
}

# undo stops the servers that this call has started, complete or not. The process
# groups of the starters do not contain the servers, but the helpers that set up
# their data.
undo() {
  trap '' INT TERM HUP
  local signal job kind
  for signal in TERM KILL; do
    for job in "${jobs[@]}"; do kill -s $signal -- "-$job" 2>/dev/null || true; done
    wait 2>/dev/null
    for kind in "${starting[@]}"; do stop_server "$dir/$kind"; done
  done
  for kind in "${starting[@]}"; do
    # Once more, in case a helper wrote its last file meanwhile.
    rm -rf -- "${dir:?}/$kind" 2>/dev/null || { sleep 0.2 && rm -rf -- "${dir:?}/$kind"; }
  done
  note "not all servers started; those started now were stopped again"
}

for kind in kafka mariadb mysql postgresql redis; do
  name=${variable[$kind]}
  if [[ ${!name:-} ]]; then check_named "$name"; else wanted+=("$kind"); fi
done
if ((${#wanted[@]} == 0)); then
  print_lines >&3
  exit
fi

[[ ! -e $dir || -O $dir ]] || die "$dir belongs to another user"
[[ ! -d $dir || -e $dir/.orderclose || -z $(ls -A -- "$dir") ]] || die "$dir holds other things"
dir=$(own_dir "$dir")
lock_dir "$dir"
touch "$dir/.orderclose" # down.sh removes only folders that contain it

for kind in "${wanted[@]}"; do
  if ! { running "$dir/$kind" && answers "$(<"$dir/$kind/port")"; }; then starting+=("$kind"); fi
done
if ((${#starting[@]} > 0)); then
  choose_servers
  if [[ $ORDERCLOSE_SERVERS == native ]]; then "$here/install.sh" "${starting[@]}"; fi
  note "starting ${starting[*]} in $dir"
  trap undo EXIT
  set -m # a process group for each starter, so that undo reaches all processes in it
  for kind in "${starting[@]}"; do
    stop_server "$dir/$kind" # it runs but does not answer
    start "$kind" </dev/null &
    jobs+=($!)
  done
  set +m
  for job in "${jobs[@]}"; do wait "$job"; done
  trap - EXIT
fi
(umask 077 && print_lines >"$dir/env")
print_lines >&3
