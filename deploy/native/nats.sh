#!/usr/bin/env bash
# Starts and stops one NATS server with JetStream on 127.0.0.1. It returns when the server
# accepts connections. Further arguments are nats-server's. A server that is stopped and
# started again keeps its data.
#
# usage: nats.sh start DIR PORT [nats-server argument ...]
#        nats.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start_native() {
  [[ -x $(nats_home)/nats-server ]] || die "no nats-server in $(nats_home): run deploy/native/install.sh nats"
  launch "$1" "$2" 'Server is ready' \
    "$(nats_home)/nats-server" --addr 127.0.0.1 --port "$2" --jetstream --store_dir "$1/data" "${@:3}"
}

start_container() { native_only; }

control "$@"
