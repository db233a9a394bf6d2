#!/usr/bin/env bash
# Runs rounds of the whole pipeline, and one with a broker that is killed, on several versions of Kafka,
# one after the other. It fetches each version (install.sh), and prints a line for each at the end. The
# servers run natively: each version of Kafka needs a Java that it knows.
#
# usage: test-kafkas.sh [go test argument ...]
#   KAFKA_VERSIONS   default: the lines of Kafka that are in use, from the oldest that is supported
#   KAFKA_TESTS      the tests, as go test -run takes them
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$here/../.."

read -ra versions <<<"${KAFKA_VERSIONS:-3.3.2 3.9.2 4.0.2 4.1.2 4.4.0}"
tests=${KAFKA_TESTS:-^TestReal_(EveryPromiseIsKept|KillingARelayOrACloserLosesNothing|OneBrokerOfThree|TopicsCheckFindsDriftAndApplyFixesIt)$}
export ORDERCLOSE_SERVERS=native REQUIRE_REAL=1 PACKAGES=./internal/testkit/realtest
# Servers that somebody has started may be of any version.
unset ORDERCLOSE_KAFKA_BROKERS

failed=0 table=
for version in "${versions[@]}"; do
  note "Kafka $version"
  began=$SECONDS outcome=ok
  KAFKA_VERSION=$version "$here/test.sh" -run "$tests" "$@" || outcome=FAILED failed=1
  table+="$(printf '%-8s %-7s %4d s' "$version" "$outcome" "$((SECONDS - began))")"$'\n'
done
printf '%s' "$table"
exit "$failed"
