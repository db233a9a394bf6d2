#!/usr/bin/env bash
# Starts the program of one package's tests. Those of the simulation only compute: they leave the processors to the servers, which
# otherwise answer after seconds.
case $1 in
  */simulation.test) exec nice -n 15 "$@" ;;
  *) exec "$@" ;;
esac
