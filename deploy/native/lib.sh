# shellcheck shell=bash
# Functions that the scripts of this folder share; sourced, never run.
#
# Each server has a folder DIR of its own: DIR/port, DIR/log, DIR/data, and DIR/pid
# or DIR/container. All servers listen on 127.0.0.1 only.
set -euo pipefail

# mariadbd is in sbin, which is not in every user's PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { note "$@"; exit 1; }

# kafka_version prints the version of Kafka: KAFKA_VERSION, or the one that all tests run with.
kafka_version() { echo "${KAFKA_VERSION:-4.1.0}"; }

# kafka_home prints the folder into which install.sh puts Kafka's jars.
kafka_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/kafka-$(kafka_version)"; }

# current_home NAME prints the folder into which install.sh puts the current release of NAME, mariadb or mysql. has_current tells whether it is there and
# OLD_SERVERS does not choose the older one, mysql_home prints the folder of MySQL, and use_mariadb puts the programs of MariaDB into PATH.
current_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/$1-current"; }
has_current() { [[ ! ${OLD_SERVERS-} && -d $(current_home "$1") ]]; }
mysql_home() { if has_current mysql; then current_home mysql; else echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/mysql-8.0.15"; fi; }
use_mariadb() { if has_current mariadb; then PATH=$(current_home mariadb)/sbin:$(current_home mariadb)/bin:$PATH; fi; }

# rabbitmq_home prints the folder into which install.sh puts RabbitMQ and Erlang, rocketmq_home the one for RocketMQ's jars, jdbc_home the one for the JDBC drivers,
# clients_home the one for the libraries of examples/clients, nats_home the one for the NATS server. Each name has the version.
rabbitmq_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/rabbitmq-4.3.6"; }
rocketmq_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/rocketmq-5.5.0"; }
jdbc_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/jdbc-3.5.3-9.1.0"; }
clients_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/clients"; }
nats_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/nats-server-2.15.3"; }

# Releases of PostgreSQL that install.sh can get from Maven, by POSTGRESQL_VERSION, with the
# checksum of the file.
declare -A postgresql_releases=(
  [13]='13.22.0 df102cd31047d65cd10a3394240cda388e2b9804074d707937ac5b7c5d5d8de5'
  [14]='14.19.0 8de92fe6d209f864bfae82cb881e416716d139961cc06dbe18629f150a63c71b'
  [16]='16.10.0 17a8ded28bde97fe66247387806af30ee26190fc96503c47c3eaa4fcbdcff8b6'
  [17]='17.6.0 23da5a044b4fb7a5a081a45008c95749c873305328d73f86aefd56922ce1d29d'
  [18]='18.0.0 5dbbdf754ddb3ae2169b7864de4b7c294ec6add47999331a64f1c6c85e862a0c'
)

# postgresql_home prints the folder into which install.sh puts the release of
# POSTGRESQL_VERSION. Of root it is no private folder, because PostgreSQL does not run as root.
postgresql_home() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache} release=${postgresql_releases[$POSTGRESQL_VERSION]:-}
  [[ $release ]] || die "there is no PostgreSQL $POSTGRESQL_VERSION here; POSTGRESQL_VERSION is one of ${!postgresql_releases[*]}, or unset for Debian's"
  if ((EUID == 0)); then cache=/var/cache; fi
  echo "$cache/orderclose/postgresql-${release% *}"
}

# postgresql_programs prints the folder of PostgreSQL's programs, or fails: of the release of
# POSTGRESQL_VERSION, else of Debian's, the newest if there are several.
postgresql_programs() {
  local programs
  if [[ ${POSTGRESQL_VERSION:-} ]]; then
    programs=$(postgresql_home) || exit
    programs+=/bin
  else
    programs=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
  fi
  [[ -x $programs/postgres ]] && echo "$programs"
}

# as_postgres DIR creates DIR/files for a server that refuses to run as root, and sets user to
# the words before its command.
as_postgres() {
  local above=$1 account=postgres
  user=()
  mkdir -p "$1/files"
  if ((EUID != 0)); then return; fi
  id -u "$account" >/dev/null 2>&1 || account=nobody # without Debian's package
  user=(setpriv "--reuid=$account" "--regid=$(id -g "$account")" --clear-groups)
  # That user must reach its files: up to a folder that anyone may enter.
  while [[ -O $above && ! -k $above && $above != / ]]; do
    chmod o+x "$above"
    above=$(dirname -- "$above")
  done
  chown "$account:" "$1/files"
}

# native_only is start_container of the servers that run natively only.
native_only() { die "this server has no container here: set ORDERCLOSE_SERVERS=native"; }

# axe_home prints the folder into which install.sh puts axe-core. Its name has the version.
axe_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/orderclose/axe-core-4.14.1"; }

# default_dir prints the default folder of up.sh and down.sh.
default_dir() { echo "${TMPDIR:-/tmp}/orderclose-up-$(id -u)"; }

# quick_dir prints the folder for the temporary files of tests. It is in memory, where a commit does not wait for a disk.
# It is the usual folder if TMPDIR names one, if there is little memory, or if no program may run in /dev/shm.
quick_dir() {
  local shm=/dev/shm
  if [[ ! ${TMPDIR-} && -w $shm ]] && ! grep -q " $shm [^ ]* [^ ]*noexec" /proc/mounts &&
    (($(df -Pk $shm | awk 'END {print $4}') > 6 << 20 && $(awk '/^MemAvailable/ {print $2}' /proc/meminfo) > 12 << 20)); then
    echo $shm
  else
    echo "${TMPDIR:-/tmp}"
  fi
}

# own_dir DIR creates DIR, for this user only, and prints its path without symbolic
# links.
own_dir() { (umask 077 && mkdir -p -- "$1" && cd -- "$1" && pwd -P); }

# lock_dir DIR creates DIR and locks it against other scripts until this script and
# all its child processes have ended. A down.sh may remove DIR while this script
# waits for the lock. The lock is then on a removed folder, and lock_dir starts
# again.
lock_dir() {
  while :; do
    own_dir "$1" >/dev/null
    exec 9<"$1"
    flock 9
    if [[ $1 -ef /dev/fd/9 ]]; then return; fi
  done
}

# unmount_below DIR unmounts the disks below DIR that a killed program has left.
unmount_below() {
  local folder
  awk -v below="$1/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts | while read -r folder; do umount --lazy -- "$folder" || true; done
}

answers() { (exec 4<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port prints a port on which no process listens, below the kernel's range for
# the local ends of connections (32768 and up).
free_port() {
  local port
  for _ in {1..100}; do
    port=$((10240 + SRANDOM % 22000))
    if ! answers "$port"; then
      echo "$port"
      return
    fi
  done
  die "no free port found between 10240 and 32240"
}

# choose_servers sets ORDERCLOSE_SERVERS to native or containers. If it is not set, a
# container engine that works is preferred.
choose_servers() {
  case ${ORDERCLOSE_SERVERS:-} in
  native | containers) ;;
  '') if container_engine >/dev/null; then ORDERCLOSE_SERVERS=containers; else ORDERCLOSE_SERVERS=native; fi ;;
  *) die "ORDERCLOSE_SERVERS is '$ORDERCLOSE_SERVERS': native or containers" ;;
  esac
  export ORDERCLOSE_SERVERS
}

# control start DIR PORT [...] | stop DIR is the command line of kafka.sh,
# mariadb.sh, mysql.sh, postgresql.sh and redis.sh. They define start_native and start_container,
# which get DIR PORT [...].
control() {
  local dir
  if [[ ${1:-} == stop && $# == 2 ]]; then
    stop_server "$2"
  elif [[ ${1:-} == start && $# -ge 3 ]]; then
    dir=$(own_dir "$2")
    if running "$dir"; then die "a server runs in $dir already"; fi
    stop_server "$dir" # remains of a crash
    choose_servers
    echo "$3" >"$dir/port"
    "start_${ORDERCLOSE_SERVERS%s}" "$dir" "${@:3}"
  else
    die "usage: ${0##*/} start DIR PORT [...] | stop DIR"
  fi
}

# launch DIR PORT READY COMMAND... starts COMMAND with DIR as its working folder, and
# returns when its log contains READY and PORT answers, within ORDERCLOSE_START_SECONDS
# (default: 120, for a busy machine). The server gets a session of its own, so that Ctrl-C
# reaches the script that stops it in order, and not the
# server. The process writes its pid before it execs the server, so a running server
# can be found even if this script is killed.
launch() {
  local dir=$1 port=$2 ready=$3 limit=$((SECONDS + ${ORDERCLOSE_START_SECONDS:-120}))
  shift 3
  cd -- "$dir"
  : >log # without the lines of a server that ran before
  # Closed for the server: 3 is up.sh's real stdout, which its caller reads to the
  # end; 9 is a lock.
  # shellcheck disable=SC2016 # expanded by the inner shell
  setsid bash -c 'echo $$ >pid; exec "$@"' server "$@" </dev/null >log 2>&1 3>&- 9>&- &
  trap 'kill $! || true; stop_server "$dir"; exit 1' INT TERM HUP
  while ((SECONDS < limit)) && kill -0 $! 2>/dev/null; do
    if grep -qs -- "$ready" log && answers "$port"; then
      trap - INT TERM HUP
      return
    fi
    sleep 0.1
  done
  note "no server on port $port; errors in $dir/log, and its end:"
  { grep -iE 'error|exception|fatal' log | head -n 10 || true; tail -n 15 log; } >&2
  stop_server "$dir"
  exit 1
}

# server_pid DIR prints the pid of the server that runs in DIR (a path without
# symbolic links), or fails. A pid file may outlive its server, and its number may
# belong to another process now. So the working folder of the process must also be in
# DIR.
server_pid() {
  local pid cwd
  pid=$(cat -- "$1/pid" 2>/dev/null) || return 1
  cwd=$(readlink "/proc/$pid/cwd") || return 1
  [[ $cwd/ == "$1"/* || $cwd == "$1 (deleted)" ]] && echo "$pid"
}

# running DIR succeeds if the server of DIR runs.
running() {
  if [[ -e $1/container ]]; then container_running "$1"; else server_pid "$1" >/dev/null; fi
}

# stop_server DIR stops the server of DIR, if it runs: by SIGTERM or the signal in DIR/signal,
# and after 15 s by SIGKILL.
stop_server() {
  local dir pid signal i
  if [[ -e $1/container ]]; then
    container_stop "$1"
    return
  fi
  dir=$(cd -- "$1" 2>/dev/null && pwd -P) || return 0
  for signal in "$(cat -- "$dir/signal" 2>/dev/null || echo TERM)" KILL; do
    for ((i = 0; i < 150; i++)); do
      if ! pid=$(server_pid "$dir"); then break 2; fi
      if ((i == 0)); then kill -s $signal "$pid" 2>/dev/null || true; fi
      sleep 0.1
    done
  done
  rm -f -- "$dir/pid"
}

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=deploy/native/containers.sh
. "$here/containers.sh"
