#!/usr/bin/env bash
# Starts and stops three Kafka brokers (KRaft, each also a controller) on
# 127.0.0.1, natively. Three are the fewest that keep working without one of them.
# DIR/brokers holds their addresses for clients. DIR/1, DIR/2 and DIR/3 are the
# folders of the brokers, with pid, port and log. The cluster notices after 3 s
# (default: 9) that a broker was killed.
#
# usage: kafka-cluster.sh start DIR      all three; returns when all accept requests
#        kafka-cluster.sh start DIR N    broker N again, with its data
#        kafka-cluster.sh stop DIR N     broker N in order: it hands its leaders over
#        kafka-cluster.sh kill DIR N     broker N by SIGKILL
#        kafka-cluster.sh stop DIR       all three by SIGKILL: stopped in order, the
#                                        last would wait for a majority for ever
# shellcheck source=deploy/native/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
export ORDERCLOSE_SERVERS=native # containers do not share a loopback interface
export KAFKA_HEAP_OPTS=${KAFKA_HEAP_OPTS:--Xmx512m}

# choose_ports DIR writes DIR/ports: the ports of three brokers, then of their
# controllers.
choose_ports() {
  local port ports=' '
  while [[ $(wc -w <<<"$ports") -lt 6 ]]; do
    port=$(free_port)
    if [[ $ports != *" $port "* ]]; then ports+="$port "; fi
  done
  echo "$ports" >"$1/ports"
}

# start_broker DIR N
start_broker() {
  local dir=$1 n=$2 port
  read -ra port <"$dir/ports"
  "$here/kafka.sh" start "$dir/$n" "${port[n - 1]}" "node.id=$n" \
    "listeners=PLAINTEXT://127.0.0.1:${port[n - 1]},CONTROLLER://127.0.0.1:${port[n + 2]}" \
    "controller.quorum.voters=1@127.0.0.1:${port[3]},2@127.0.0.1:${port[4]},3@127.0.0.1:${port[5]}" \
    offsets.topic.replication.factor=3 transaction.state.log.replication.factor=3 \
    transaction.state.log.min.isr=2 share.coordinator.state.topic.replication.factor=3 \
    share.coordinator.state.topic.min.isr=2 \
    broker.session.timeout.ms=3000 broker.heartbeat.interval.ms=500
}

# kill_broker DIR N returns when the process has ended.
kill_broker() {
  local pid
  while pid=$(server_pid "$1/$2"); do
    kill -s KILL "$pid" 2>/dev/null || true
    sleep 0.02
  done
  rm -f -- "$1/$2/pid"
}

start_all() {
  local n job jobs=() failed=0 port
  choose_ports "$1"
  read -ra port <"$1/ports"
  for n in 1 2 3; do
    start_broker "$1" "$n" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || failed=1; done
  if ((failed)); then
    for n in 1 2 3; do kill_broker "$1" "$n"; done
    die "not all three brokers started; those that did were stopped again"
  fi
  echo "127.0.0.1:${port[0]},127.0.0.1:${port[1]},127.0.0.1:${port[2]}" >"$1/brokers"
}

usage="usage: kafka-cluster.sh start DIR [N] | stop DIR [N] | kill DIR N"
[[ $# == 2 || $# == 3 && $3 == [123] ]] || die "$usage"
dir=$(own_dir "$2")
case $1:$# in
start:2) start_all "$dir" ;;
start:3) start_broker "$dir" "$3" ;;
stop:3) "$here/kafka.sh" stop "$dir/$3" ;;
kill:3) kill_broker "$dir" "$3" ;;
stop:2) for n in 1 2 3; do kill_broker "$dir" "$n"; done ;;
*) die "$usage" ;;
esac
