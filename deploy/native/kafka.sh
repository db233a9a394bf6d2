#!/usr/bin/env bash
# Starts and stops one Kafka broker (KRaft, its own controller) on 127.0.0.1. It
# returns when the broker accepts requests. Further arguments are lines of
# server.properties; they come last and override the settings here. A native broker
# that is stopped and started again keeps its data. KAFKA_HEAP_OPTS sets the heap of
# a native JVM (-Xmx1g), and KAFKA_VERSION chooses another version than the usual one.
#
# usage: kafka.sh start DIR PORT [key=value ...]
#        kafka.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# No topic is created automatically, consumers join without a delay, and internal
# topics are as small as one broker allows.
common=(
  auto.create.topics.enable=false
  group.initial.rebalance.delay.ms=0
  offsets.topic.num.partitions=5
  offsets.topic.replication.factor=1
  transaction.state.log.num.partitions=5
  transaction.state.log.replication.factor=1
  transaction.state.log.min.isr=1
  share.coordinator.state.topic.num.partitions=5
  share.coordinator.state.topic.replication.factor=1
  share.coordinator.state.topic.min.isr=1
)

# listeners ADDRESS BROKER CONTROLLER ADVERTISED prints the listeners of the broker
# and its controller, and the advertised port.
listeners() {
  printf '%s\n' process.roles=broker,controller node.id=1 \
    "listeners=PLAINTEXT://$1:$2,CONTROLLER://127.0.0.1:$3" \
    "advertised.listeners=PLAINTEXT://127.0.0.1:$4" \
    "controller.quorum.voters=1@127.0.0.1:$3" \
    controller.listener.names=CONTROLLER inter.broker.listener.name=PLAINTEXT \
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
}

start_native() {
  local dir=$1 port=$2 controller=$2 libs
  libs=$(kafka_home)/libs
  [[ -d $libs ]] || die "no Kafka in $libs: run deploy/native/install.sh kafka"
  while [[ $controller == "$port" ]]; do controller=$(free_port); done
  {
    listeners 127.0.0.1 "$port" "$controller" "$port"
    printf '%s\n' "log.dirs=$dir/data" "${common[@]}" "${@:3}"
  } >"$dir/server.properties"

  # Libraries unpack their native code into the temporary folder and may leave it
  # there.
  mkdir -p "$dir/tmp"
  local java=(java "-Djava.io.tmpdir=$dir/tmp" -XX:-UsePerfData
    -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS -cp "$libs/*")
  if [[ ! -e $dir/data/meta.properties ]]; then
    "${java[@]}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 kafka.tools.StorageTool format --cluster-id orderclose-test-broker \
      --config "$dir/server.properties" >"$dir/log" 2>&1 || { cat "$dir/log" >&2 && die "cannot format $dir/data"; }
  fi
  # shellcheck disable=SC2086 # may be several options
  launch "$dir" "$port" 'Kafka Server started' \
    "${java[@]}" ${KAFKA_HEAP_OPTS:--Xmx1g} kafka.Kafka "$dir/server.properties"
}

# The image reads each setting from a variable: KAFKA_ and the key in upper case,
# with _ for dots.
start_container() {
  local dir=$1 port=$2 setting key options=()
  for setting in $(listeners 0.0.0.0 9092 9093 "$port") "${common[@]}" "${@:3}"; do
    key=${setting%%=*}
    key=${key//./_}
    options+=(--env "KAFKA_${key^^}=${setting#*=}")
  done
  container_launch "$dir" "$port" 9092 container_ready "${options[@]}" -- "apache/kafka:$(kafka_version)"
}

container_ready() { "$1" logs "$2" 2>&1 | grep -c 'Kafka Server started' >/dev/null; }

control "$@"
