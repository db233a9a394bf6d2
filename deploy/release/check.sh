#!/usr/bin/env bash
# Builds a snapshot of the commit twice, the second time without a build cache and with other settings of the machine, and compares the bytes.
set -euo pipefail
cd "$(dirname -- "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
./release.sh "$work/one" --snapshot
(export GOCACHE="$work/cache" TZ=Asia/Tokyo && umask 077 && ./release.sh "$work/two" --snapshot)
cd "$work/one"
sha256sum --check --strict SHA256SUMS
diff SHA256SUMS ../two/SHA256SUMS
echo "Two builds of a commit gave the same bytes."
