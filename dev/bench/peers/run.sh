#!/usr/bin/env bash
# Builds the comparison and runs it. It starts each server in a temporary folder and always stops
# it again. README.md in this folder describes the measurements.
#
# usage: run.sh [run | report]
#   PEERS="orderclose redis"   only these ways; default: all
#   WORKLOADS="w1 w2"          only these; default: all, and w1 w2 w3 with QUICK=1
#   ROUNDS=3                   measure each workload three times (W5 has always five rounds)
#   QUICK=1                    less of everything; the page is not written
#   RESULTS=FILE               append each result to FILE; default: results.jsonl of this folder
set -euo pipefail
# In a mount namespace of its own the disks of W7 vanish with it. Only root can do that; without it no power is cut.
if [[ -z ${PEERS_NAMESPACE:-} ]] && unshare --mount true 2>/dev/null; then
  PEERS_NAMESPACE=1 exec unshare --mount "$0" "$@"
fi
. "$(dirname -- "${BASH_SOURCE[0]}")/../../../deploy/native/lib.sh"
native=$here
if [[ ${RESULTS:-} ]]; then RESULTS=$(realpath -m -- "$RESULTS"); fi
cd "$native/../../dev/bench/peers"
export ORDERCLOSE_SERVERS=native # most of them have no container here

peers=

# finish ends the comparison if it still runs, and then every server.
# shellcheck disable=SC2317 # called by trap
finish() {
  trap '' INT TERM HUP
  if [[ $peers ]] && kill -TERM "$peers" 2>/dev/null; then wait "$peers" || true; fi
  local folder
  for folder in "$dir"/servers/*/*/; do # after a kill of the comparison they may still run
    stop_server "$folder" &
  done
  wait
  unmount_below "$dir"
  "$native/down.sh" "$dir"
}

dir=$(own_dir "$(mktemp -d "${TMPDIR:-/tmp}/orderclose-peers.XXXXXX")")
touch "$dir/.orderclose"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

go build -o "$dir/peers" .
results=${RESULTS:-$PWD/results.jsonl}
if [[ ${QUICK:-} ]]; then results=${RESULTS:-$dir/results.jsonl}; fi

if [[ ${1:-run} == run ]]; then
  go build -C ../../.. -o "$dir/orderclose" ./cmd/orderclose
  mkdir "$dir/servers"
  "$dir/peers" run -peers "${PEERS:-}" -workloads "${WORKLOADS:-}" -rounds "${ROUNDS:-1}" ${QUICK:+-quick} \
    -results "$results" -dir "$dir/servers" -orderclose "$dir/orderclose" </dev/null &
  peers=$!
  code=0
  wait "$peers" || code=$?
  peers=
  if ((code > 0)); then exit "$code"; fi
fi
if [[ ! ${QUICK:-} || ${1:-run} == report ]]; then "$dir/peers" report -results "$results" -root ../../..; fi
