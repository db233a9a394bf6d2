#!/usr/bin/env bash
# Starts and stops one RabbitMQ on 127.0.0.1, user guest, password guest, with the name
# server of Erlang that it needs. It returns when the broker accepts connections. Further
# arguments are lines of rabbitmq.conf. A server that is stopped and started again keeps
# its data. RABBITMQ_BESIDE is the folder of another server here: both have its name server and its
# cookie, and so can be one cluster.
#
# usage: rabbitmq.sh start DIR PORT [key=value ...]
#        rabbitmq.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start_native() {
  local dir=$1 port=$2 home=${RABBITMQ_BESIDE:-$1} names distribution
  [[ -d $(rabbitmq_home) ]] || die "no RabbitMQ in $(rabbitmq_home): run deploy/native/install.sh rabbitmq"
  PATH=$(rabbitmq_home)/lib/erlang/bin:$PATH
  if ! running "$home/names"; then # it survives a broker that was killed
    own_dir "$home/names" >/dev/null
    free_port >"$home/names/port"
    launch "$home/names" "$(<"$home/names/port")" 'epmd running' \
      epmd -d -port "$(<"$home/names/port")" -address 127.0.0.1
  fi
  names=$(<"$home/names/port")
  distribution=$(free_port)
  printf '%s\n' "${@:3}" >"$dir/rabbitmq.conf"
  : >"$dir/env.conf"
  # RUNNING_UNDER_SYSTEMD: the script becomes the Erlang VM and does not wait for it.
  launch "$dir" "$port" 'completed with' \
    env HOME="$home" LANG=C.UTF-8 RUNNING_UNDER_SYSTEMD=true RABBITMQ_NODENAME="orderclose$port@localhost" \
    RABBITMQ_CONF_ENV_FILE="$dir/env.conf" RABBITMQ_CONFIG_FILE="$dir/rabbitmq" RABBITMQ_MNESIA_BASE="$dir/data" \
    RABBITMQ_LOG_BASE="$dir/logs" RABBITMQ_ENABLED_PLUGINS_FILE="$dir/plugins" RABBITMQ_PID_FILE="$dir/rabbitmq.pid" \
    RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$port" RABBITMQ_DIST_PORT="$distribution" \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}' \
    ERL_EPMD_PORT="$names" ERL_EPMD_ADDRESS=127.0.0.1 "$(rabbitmq_home)/lib/rabbitmq/bin/rabbitmq-server"
}

start_container() { native_only; }

control "$@"
if [[ $1 == stop ]]; then stop_server "$2/names"; fi
