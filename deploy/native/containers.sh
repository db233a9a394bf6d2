# shellcheck shell=bash
# Runs the same servers in containers, for a machine where docker or podman works.
# Sourced by lib.sh, never run. DIR/container holds the container's id, DIR/engine
# the name of its engine. Ports are published on 127.0.0.1 only.

# container_engine prints the container engine that works on this machine, or fails.
container_engine() {
  local engine
  for engine in docker podman; do
    if command -v "$engine" >/dev/null && timeout 10 "$engine" info >/dev/null 2>&1; then
      echo "$engine"
      return
    fi
  done
  return 1
}

# container_launch DIR PORT INNER READY [OPTION...] -- IMAGE [ARGUMENT...] runs IMAGE
# with its port INNER published as PORT. It returns when the function READY, called
# with engine and container, succeeds.
container_launch() {
  local dir=$1 port=$2 inner=$3 ready=$4 engine options=() limit
  shift 4
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  shift
  engine=$(container_engine) || die "ORDERCLOSE_SERVERS is containers, but neither docker nor podman works"
  echo "$engine" >"$dir/engine"
  trap 'stop_server "$dir"; exit 1' INT TERM HUP
  if ! "$engine" run --detach --cidfile "$dir/container" --publish "127.0.0.1:$port:$inner" \
    "${options[@]}" "$@" >"$dir/log" 2>&1 3>&- 9>&-; then # closed as in launch
    cat "$dir/log" >&2
    stop_server "$dir"
    die "$engine cannot run $1; ORDERCLOSE_SERVERS=native does without containers"
  fi
  limit=$((SECONDS + 60))
  while ((SECONDS < limit)) && container_running "$dir"; do
    if "$ready" "$engine" "$(<"$dir/container")" && answers "$port"; then
      trap - INT TERM HUP
      return
    fi
    sleep 0.2
  done
  note "$1 is not ready on port $port; the end of its log:"
  "$engine" logs --tail 30 "$(<"$dir/container")" >&2 || true
  stop_server "$dir"
  exit 1
}

container_running() {
  [[ $("$(<"$1/engine")" inspect --format '{{.State.Running}}' "$(<"$1/container")" 2>/dev/null) == true ]]
}

# container_stop DIR removes the container of DIR, with its data.
container_stop() {
  "$(<"$1/engine")" rm --force --volumes "$(<"$1/container")" >/dev/null || note "container $(<"$1/container") was not removed"
  rm -f -- "$1/container"
}
