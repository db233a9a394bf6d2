#!/usr/bin/env bash
# Starts and stops one Redis Sentinel on 127.0.0.1. DIR/sentinel.conf must exist; the sentinel writes
# what it learns into it. Further arguments are redis-server's.
#
# usage: sentinel.sh start DIR PORT [redis-server argument ...]
#        sentinel.sh stop DIR
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start_native() {
  command -v redis-server >/dev/null || die "no redis-server: run deploy/native/install.sh redis"
  launch "$1" "$2" 'Sentinel ID is' \
    redis-server "$1/sentinel.conf" --sentinel --bind 127.0.0.1 --port "$2" --dir "$1" "${@:3}"
}

start_container() { native_only; }

control "$@"
