#!/usr/bin/env bash
# Builds a release of the commit that is checked out, in a clone, where Go and goreleaser find its version:
#   release.sh OUT [FLAG OF GORELEASER...]
set -euo pipefail
out=$(realpath -m -- "$1")
if [[ -n ${RELEASE_KEY:-} ]]; then RELEASE_KEY=$(realpath -- "$RELEASE_KEY"); fi
cd "$(dirname -- "$0")/../.."
if [[ -n $(git status --porcelain) ]]; then
  echo "commit or stash your changes:" >&2
  git status --short >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet . "$work/orderclose"
(cd "$work/orderclose" && goreleaser release --parallelism=1 --skip=publish,announce "${@:2}")
rm -rf "$out"
mv "$work/orderclose/dist" "$out"
if [[ -z ${RELEASE_KEY:-} ]]; then
  echo "SHA256SUMS is not signed: RELEASE_KEY names no key of minisign" >&2
  exit
fi
# The comments have no time: two releases of a commit have the same bytes.
minisign -S -s "$RELEASE_KEY" -c orderclose -t "SHA256SUMS of orderclose $(git describe --tags --always)" -m "$out/SHA256SUMS" <<<"${RELEASE_KEY_PASSWORD:-}"
