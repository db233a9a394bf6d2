#!/usr/bin/env bash
# Starts a Kafka broker, a MariaDB, a MySQL and a Redis, except those that the
# environment names already, and prints the variables on stdout:
#
#     eval "$(make -s up)"
#
# They listen on free ports of 127.0.0.1; their data is in DIR (by default
# ${TMPDIR:-/tmp}/orderclose-up-<uid>). The lines also stand in DIR/env, each
# value in single quotes, for programs whose environment names nothing. Those
# that run in DIR already are left running. If one does not start, what this
# call has started is stopped again. MySQL is the second database of the tests:
# nothing else reads ORDERCLOSE_MYSQL_DSN.
#
# Containers are used where docker or podman works, else programs of this
# machine; ORDERCLOSE_SERVERS=native or containers settles it.
#
# usage: up.sh [DIR]        (down.sh [DIR] stops them)
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
exec 3>&1 >&2 # only the lines go to the real stdout
trap 'exit 1' INT TERM HUP

dir=${1:-$(default_dir)}
declare -A variable=([kafka]=ORDERCLOSE_KAFKA_BROKERS [mariadb]=ORDERCLOSE_DB_DSN [mysql]=ORDERCLOSE_MYSQL_DSN [redis]=ORDERCLOSE_REDIS_URL)
wanted=()   # not named by the environment
starting=() # by this call
jobs=()     # their starters

# address KIND prints where the server of KIND in DIR is, as its variable has it.
address() {
  local port
  port=$(<"$dir/$1/port")
  case $1 in
  kafka) echo "127.0.0.1:$port" ;;
  mariadb | mysql) echo "root@tcp(127.0.0.1:$port)/" ;;
  redis) echo "redis://127.0.0.1:$port/0" ;;
  esac
}

print_lines() {
  local kind name value
  for kind in kafka mariadb mysql redis; do
    name=${variable[$kind]}
    value=${!name:-$(address "$kind")}
    printf "export %s='%s'\n" "$name" "${value//\'/\'\\\'\'}"
  done
}

# check_named VARIABLE refuses a loopback port where nobody listens: most often
# the variable was left in this shell by an earlier up, since stopped.
check_named() {
  local value=${!1} port
  if [[ $value =~ 127\.0\.0\.1:([0-9]+) ]]; then
    port=${BASH_REMATCH[1]}
    answers "$port" || die "$1 names $value, but nothing answers on port $port; unset $1 to have a server started"
  fi
}

# start KIND tries a second port if somebody was quicker to take the first.
start() {
  "$here/$1.sh" start "$dir/$1" "$(free_port)" && return
  grep -qsi 'already \(in use\|allocated\)' "$dir/$1/log" && "$here/$1.sh" start "$dir/$1" "$(free_port)"
}

# undo stops what this call has started, complete or not. The starters' process
# groups do not contain the servers, but the helpers that set up their data.
undo() {
  trap '' INT TERM HUP
  local signal job kind
  for signal in TERM KILL; do
    for job in "${jobs[@]}"; do kill -s $signal -- "-$job" 2>/dev/null || true; done
    wait 2>/dev/null
    for kind in "${starting[@]}"; do stop_server "$dir/$kind"; done
  done
  for kind in "${starting[@]}"; do
    # Once more if a helper wrote its last file meanwhile.
    rm -rf -- "${dir:?}/$kind" 2>/dev/null || { sleep 0.2 && rm -rf -- "${dir:?}/$kind"; }
  done
  note "not all servers started; those started now were stopped again"
}

for kind in kafka mariadb mysql redis; do
  name=${variable[$kind]}
  if [[ ${!name:-} ]]; then check_named "$name"; else wanted+=("$kind"); fi
done
if ((${#wanted[@]} == 0)); then
  print_lines >&3
  exit
fi

[[ ! -e $dir || -O $dir ]] || die "$dir belongs to somebody else"
[[ ! -d $dir || -e $dir/.orderclose || -z $(ls -A -- "$dir") ]] || die "$dir holds other things"
dir=$(own_dir "$dir")
lock_dir "$dir"
touch "$dir/.orderclose" # down.sh removes no folder without it

for kind in "${wanted[@]}"; do
  if ! { running "$dir/$kind" && answers "$(<"$dir/$kind/port")"; }; then starting+=("$kind"); fi
done
if ((${#starting[@]} > 0)); then
  choose_servers
  if [[ $ORDERCLOSE_SERVERS == native ]]; then "$here/install.sh" "${starting[@]}"; fi
  note "starting ${starting[*]} in $dir"
  trap undo EXIT
  set -m # a process group for each starter, so that undo reaches all of it
  for kind in "${starting[@]}"; do
    stop_server "$dir/$kind" # alive but not answering
    start "$kind" </dev/null &
    jobs+=($!)
  done
  set +m
  for job in "${jobs[@]}"; do wait "$job"; done
  trap - EXIT
fi
(umask 077 && print_lines >"$dir/env")
print_lines >&3
