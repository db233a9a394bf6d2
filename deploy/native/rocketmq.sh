#!/usr/bin/env bash
# Starts and stops one RocketMQ broker and its name server on 127.0.0.1. DIR/names/port has
# the port of the name server. It returns when the broker is registered there. Further
# arguments are lines of broker.conf. A broker that is stopped and started again keeps its
# data.
#
# usage: rocketmq.sh start DIR PORT [key=value ...]
#        rocketmq.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

export ORDERCLOSE_START_SECONDS=${ORDERCLOSE_START_SECONDS:-180} # on a busy machine the broker takes longer than other servers

# java_command DIR prints the words of the command of both servers.
java_command() {
  printf '%s\n' env "ROCKETMQ_HOME=$1" java "-Duser.home=$1" -XX:+UseG1GC -XX:-UsePerfData \
    --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \
    --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED \
    -cp "$(rocketmq_home)/libs/*"
}

start_native() {
  local dir=$1 port=$2 names java
  [[ -d $(rocketmq_home)/libs ]] || die "no RocketMQ in $(rocketmq_home): run deploy/native/install.sh rocketmq"
  mapfile -t java < <(java_command "$dir")
  if ! running "$dir/names"; then # it survives a broker that was killed
    own_dir "$dir/names" >/dev/null
    [[ -s $dir/names/port ]] || free_port >"$dir/names/port" # clients know the port
    printf '%s\n' "listenPort=$(<"$dir/names/port")" bindAddress=127.0.0.1 >"$dir/names/names.conf"
    launch "$dir/names" "$(<"$dir/names/port")" 'boot success' \
      "${java[@]}" -Xms256m -Xmx256m org.apache.rocketmq.namesrv.NamesrvStartup -c "$dir/names/names.conf"
  fi
  names=$(<"$dir/names/port")
  printf '%s\n' brokerClusterName=orderclose brokerName=orderclose brokerId=0 "namesrvAddr=127.0.0.1:$names" \
    brokerIP1=127.0.0.1 bindAddress=127.0.0.1 "listenPort=$port" "storePathRootDir=$dir/data" \
    "storePathCommitLog=$dir/data/commitlog" "${@:3}" >"$dir/broker.conf"
  launch "$dir" "$port" 'boot success' \
    "${java[@]}" -Xms2g -Xmx2g -XX:MaxDirectMemorySize=1g org.apache.rocketmq.broker.BrokerStartup -c "$dir/broker.conf"
}

start_container() { native_only; }

control "$@"
if [[ $1 == stop ]]; then stop_server "$2/names"; fi
