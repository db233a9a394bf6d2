#!/usr/bin/env bash
# Writes what archives, packages and image have beside the programs to bin/release. goreleaser calls it:
#   prepare.sh VERSION DATE IS_SNAPSHOT
set -euo pipefail
cd "$(dirname -- "$0")/../.."
umask 022
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
out=bin/release files=bin/release/files own=github.com/orderclose/orderclose
rm -rf "$out"
mkdir -p "$files"/{completions,man/man1} "$out"/units "$out"/image/{etc/{orderclose,ssl/certs},usr/{local/bin,share/doc/orderclose}}

# Of the commit, without code and the tests of alerts.
git -c tar.umask=0022 archive HEAD LICENSE NOTICE {README,CHANGELOG,CONTRIBUTING,SECURITY}.md topics.{yaml,schema.json} docs \
  deploy/{alerts,helm,compose,systemd,grafana/README.md,grafana/provisioning} ':!*.test.yml' ':!*.go' | tar -xf - -C "$files"
# The chart of a release, and the page about it, ask for the image of the release.
for file in deploy/helm/orderclose/Chart.yaml docs/kubernetes.md; do
  if [[ $3 != true ]] && ! grep -qwF "$1" "$files/$file"; then
    echo "$file has another version than $1" >&2
    exit 1
  fi
done
for unit in deploy/systemd/*.service; do
  sed 's|/usr/local/bin/|/usr/bin/|' "$unit" >"$out/units/${unit##*/}"
done

go build -C deploy/release -o ../../bin/release/make .
bin/release/make docs "$1" "$2" "$files"

# modules prints each module that the programs or the image contain, and Go: its name, version and folder.
modules() {
  local format='{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}'
  for system in linux darwin; do
    GOOS=$system go list -deps -f "$format" ./cmd/orderclose
    GOOS=$system go list -C payments -deps -f "$format" ./cmd/orderclose-payments
  done
  go list -C deploy/release -deps -f "$format" golang.org/x/crypto/x509roots/fallback/bundle
  echo "Go $(go env GOVERSION GOROOT | paste -sd ' ' -)"
}
# The licenses require that their text goes with every copy. A license that is none of these must be read first.
known='Apache License|Permission is hereby granted|Mozilla Public License|Permission to use, copy, modify|Redistribution and use in source'
modules | LC_ALL=C sort -u | while read -r name version dir; do
  [[ $name != "$own"* ]] || continue
  texts=$(find "$dir" -maxdepth 1 -type f | grep -iE '/(licen[cs]e|copying|notice)([.-][^/]*)?$' | LC_ALL=C sort) || true
  if [[ -z $texts ]] || ! xargs grep -qE "$known" <<<"$texts"; then
    echo "$name has no license in $dir that deploy/release/prepare.sh knows: read it, and add it there" >&2
    exit 1
  fi
  while read -r text; do
    printf '==== %s %s: %s\n\n%s\n\n\n' "$name" "$version" "${text##*/}" "$(cat "$text")"
  done <<<"$texts"
done >"$files/THIRD-PARTY-LICENSES"

cp "$files/topics.yaml" "$out/image/etc/orderclose/"
cp "$files"/{LICENSE,NOTICE,THIRD-PARTY-LICENSES} "$out/image/usr/share/doc/orderclose/"
