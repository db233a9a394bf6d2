#!/usr/bin/env bash
# Starts and stops one standalone worker of Kafka Connect with Debezium's connectors. PORT of 127.0.0.1 is that of
# its REST interface. It returns when the worker accepts requests; connectors start then. Each FILE has the properties
# of a connector. Records go to the broker at BROKER. A worker that is stopped and started again continues.
#
# usage: debezium.sh start DIR PORT BROKER FILE...
#        debezium.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start_native() {
  local dir=$1 port=$2 home
  home=$(debezium_home)
  [[ -d $home/libs ]] || die "no Debezium in $home: run deploy/native/install.sh debezium"
  mkdir -p "$dir/tmp"
  printf '%s\n' "bootstrap.servers=$3" "listeners=http://127.0.0.1:$port" "plugin.path=$home/plugins" \
    "offset.storage.file.filename=$dir/offsets" offset.flush.interval.ms=1000 \
    key.converter=org.apache.kafka.connect.json.JsonConverter value.converter=org.apache.kafka.connect.json.JsonConverter \
    >"$dir/worker.properties"
  launch "$dir" "$port" 'Kafka Connect started' \
    java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Djava.io.tmpdir=$dir/tmp" -XX:-UsePerfData -cp "$home/libs/*" \
    org.apache.kafka.connect.cli.ConnectStandalone "$dir/worker.properties" "${@:4}"
}

start_container() { native_only; }

control "$@"
