#!/usr/bin/env bash
# Starts and stops one Redis on 127.0.0.1 that stores nothing on disk. It returns
# when the server accepts connections. Further arguments are redis-server's.
#
# usage: redis.sh start DIR PORT [redis-server argument ...]
#        redis.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start_native() {
  command -v redis-server >/dev/null || die "no redis-server: run deploy/native/install.sh redis"
  launch "$1" "$2" 'Ready to accept connections' \
    redis-server --bind 127.0.0.1 --port "$2" --dir "$1" --save '' --appendonly no "${@:3}"
}

start_container() {
  container_launch "$1" "$2" 6379 container_ready -- redis:7 redis-server --save '' --appendonly no "${@:3}"
}

container_ready() { [[ $("$1" exec "$2" redis-cli ping 2>/dev/null) == PONG ]]; }

control "$@"
