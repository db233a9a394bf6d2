#!/usr/bin/env bash
# Runs the pipeline on three brokers, a database and Redis while faults disturb them, and
# judges the result (docs/reliability.md). It starts all servers in a temporary folder
# and always stops them again. JSON goes to stdout.
#
# usage: chaos-real.sh
#   MINUTES=10   how long orders are created; 480 is a night
#   DATABASE=... mariadb (the default), mysql or postgres
#   MAPPED=1     orders are in tables of a shop's own
#   SECURED=1    the pipeline connects to the brokers by TLS and SASL
#   OTHER=HEAD^  the second process of each stage is the program of that commit
#   POWER=1      the only faults are cuts of power; only root can cut it
#   BROKERS=1    one broker, with POWER=1 only
#   SYNC=...     the key sync of topics.yaml: always or never
#   SEED=1       another seed draws other faults
#   FAULTS=8     faults a minute
#   LOSSES=0     no fault deletes records
#   KINDS=a,b    only faults of these kinds
#   LOGS=...     where the logs of a round that broke a promise go; default: bin/chaos-real-logs
set -euo pipefail
# In a mount namespace of its own, small disks can be mounted that vanish with it. Only
# root can do that; without it no disk is filled.
if [[ -z ${CHAOS_NAMESPACE:-} ]] && unshare --mount true 2>/dev/null; then
  CHAOS_NAMESPACE=1 exec unshare --mount "$0" "$@"
fi
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
if [[ ${POWER-} ]] && ((EUID != 0)); then
  note "no power was cut: only root may mount disks"
  exit 0
fi
native=$here
cd "$native/../.."
logs=$(realpath -m -- "${LOGS:-bin/chaos-real-logs}")
mkdir -p "$(dirname -- "$logs")"
case ${DATABASE:-mariadb} in
mariadb) database=mariadb ;;
mysql) database=mysql ;;
postgres) database=postgresql ;;
*) die "DATABASE is '$DATABASE': mariadb, mysql or postgres" ;;
esac
export ORDERCLOSE_SERVERS=native # containers do not share a loopback interface

program=

# finish ends the program if it still runs, every server, and the disks.
# shellcheck disable=SC2317 # called by trap
finish() {
  trap '' INT TERM HUP
  if [[ $program ]] && kill -TERM "$program" 2>/dev/null; then wait "$program" || true; fi
  local folder
  for folder in "$dir"/servers/*/; do
    stop_server "$folder" &
  done
  wait
  unmount_below "$dir"
  "$native/down.sh" "$dir"
}

dir=$(own_dir "$(mktemp -d "${TMPDIR:-/tmp}/orderclose-chaos.XXXXXX")")
touch "$dir/.orderclose"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$native/install.sh" kafka redis "$database"
"$native/install.sh" faketime || note "no libfaketime: no clock is stepped"
go build -o "$dir/orderclose" ./cmd/orderclose
go build -o "$dir/chaosreal" ./internal/testkit/chaosreal
if [[ ${SECURED-} ]]; then "$native/install.sh" openssl; fi
other=()
if [[ ${OTHER-} ]]; then
  git worktree add --quiet --detach "$dir/other" "$OTHER"
  other=("$dir/orderclose-other")
  go -C "$dir/other" build -o "${other[0]}" ./cmd/orderclose
  git worktree remove --force "$dir/other"
fi
mkdir "$dir/servers"

"$dir/chaosreal" "$dir/servers" "$dir/orderclose" "$logs" ${other[0]+"${other[0]}"} </dev/null &
program=$!
code=0
wait "$program" || code=$?
program=
exit "$code"
