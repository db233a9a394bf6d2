#!/usr/bin/env bash
# Plays the steps of make test-all, also after one has failed. At the end it says how long each took, and which command plays a failed one again.
#
# usage: test-all.sh           every step, on a commit; if all pass, docs/reliability.md gets the result
#        test-all.sh changed   for at most eight minutes the parts whose files have changed since the commit in docs/reliability.md
set -euf -o pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/../.."
exec </dev/null
fail() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# A part is a step that .ci/run plays only after a change of its files, which are pathspecs of git. They share a time limit, so the quick ones come first.
# Mutants need no files of others: those of changed folders are played in any case, and of the rest an eighth in turn.
parts=()
declare -A command=([lint]='make lint' [chaos]='SEEDS=500 make chaos' [race]='make race') files
part() {
  parts+=("$1") command[$1]=$2 files[$1]=${*:3}
  git ls-files --error-unmatch -- "${@:3}" >/dev/null || fail "the part $1 has a path without files"
}
module() { part "$1" "make modules MODULES=$1" "$@"; }
module dev/bench ':!dev/bench/peers'
module dev/bench/peers
module deploy/grafana deploy/helm/orderclose/dashboards internal/metrics
module deploy/kubetest deploy/helm ':!deploy/helm/orderclose/dashboards'
module deploy/release .goreleaser.yaml
module examples/embed admin pipeline ':!pipeline/webconsole'
module internal/testkit/tracing internal/tracing
module internal/testkit/transactions
module payments closer/payment internal/httpcall internal/signature
module pgxtx
part old-servers 'make test-old-servers' deploy/native/{install,lib,mariadb,mysql}.sh internal/store internal/testkit/storetest
part upgrade 'make test-upgrade' internal/{config,deadletters,environ,kafka,reload,store,wire} 'internal/testkit/realtest/upgrade*'
part mutants 'make mutants' internal/testkit/mutants
part deploy/consoletest 'make test-console' deploy/consoletest cmd/orderclose-dev internal/console pipeline/webconsole
part game-day 'make test-ops' deploy/alerts deploy/helm/orderclose/alerts docs/runbook.md internal/{backlog,cli,deadletters,health,ops,topics} \
  'internal/testkit/realtest/gameday*'
part scenarios 'RING=all make test' deploy/native internal/{clock,kafka,store} internal/testkit/{realtest,simulation,storetest} \
  ':!internal/testkit/realtest/gameday*' ':!internal/testkit/realtest/upgrade*' pgxtx examples/shops
# scenarios plays each package of the product's module. Each other module is a part.
for name in $(git ls-files '*/go.mod' | xargs dirname); do
  [[ ${command[$name]-} && " $MODULES " == *" $name "* ]] || fail "the module $name is no part, or is not in MODULES of the Makefile"
done

# lane NICENESS STEP... plays steps one after another. It writes a line for each to bin/test-all/steps: seconds, exit code, name. When the time is over, or
# this script gets a signal, a step gets SIGTERM, and then has a minute to stop its servers.
lane() {
  local child='' name began code log
  trap 'kill $child 2>/dev/null || true; wait; ended; exit 143' INT TERM HUP
  for name in "${@:2}"; do
    began=$SECONDS code=0 log=bin/test-all/${name//\//-}.log
    if ((SECONDS < limit)); then
      echo "=== $name: ${command[$name]}, into $log"
      nice -n "$1" timeout -k 60 "$((limit - SECONDS))" bash -c "${command[$name]}" >"$log" 2>&1 &
      child=$!
      wait "$child" || code=$?
      ended
    fi
    if ((SECONDS >= limit)); then code=left; elif ((code)); then cat "$log"; fi
    echo "$((SECONDS - began)) $code $name" >>bin/test-all/steps
  done
}

# ended waits for the process group of a step. A make that gets SIGTERM does not wait for the scripts that its shells have started.
ended() { for ((i = 0; i < 600; i++)); do kill -0 -- "-$child" 2>/dev/null && sleep 0.1 || break; done; }

rm -rf bin/test-all
mkdir -p bin/test-all
trap 'trap "" INT TERM HUP; kill $(jobs -p) || true; wait; exit 130' INT TERM HUP
last=$(grep -oPm1 'has passed: commit `\K\w+' docs/reliability.md) || fail "docs/reliability.md names no commit of make test-all"
commit=$(git rev-parse --short=12 HEAD)
if [[ ${1-} == changed ]]; then
  limit=480 some=() since=$last
  if ! git cat-file -e "$since^{commit}" 2>/dev/null; then
    echo "the commit of the last make test-all is not in this clone: an eighth of the mutants is played, and no other part" && since=HEAD
  fi
  folders=$(git diff --name-only --no-renames "$since" -- '*.go' | xargs -r dirname -- | sort -u | xargs)
  for name in "${parts[@]}"; do
    if ! git diff --quiet "$since" -- ${files[$name]}; then
      some+=("$name")
    elif [[ $name == mutants ]]; then
      some+=("$name") command[mutants]="MUTANTS_IN='$folders' MUTANTS_EIGHTH=$(($(git rev-list --count HEAD) % 8)) make mutants"
    fi
  done
  echo "since $since, parts whose files have changed: ${some[*]}"
  lane 0 "${some[@]}" &
else
  limit=14400 waiting=(scenarios old-servers game-day upgrade) busy=(lint chaos race)
  [[ ! $(git status --porcelain) ]] || fail "the result is that of a commit, and git status names files that are not committed"
  for name in "${parts[@]}"; do [[ " ${waiting[*]} " == *" $name "* ]] || busy+=("$name"); done
  # What mostly waits for servers runs beside what keeps the processors busy. A server that gets no processor for seconds fails its tests.
  lane 15 "${busy[@]}" &
  lane 0 "${waiting[@]}" &
fi
failed=0 left='' result=''
for job in $(jobs -p); do wait "$job" || failed=1; done
while read -r took code name; do
  result+="${result:+, }$name $took"
  printf '%6d s  %s\n' "$took" "$name"
  case $code in
  0) ;;
  left) left+=" $name" ;;
  *) failed=1 && echo "failed: $name; again: ${command[$name]}" ;;
  esac
done <bin/test-all/steps
if [[ $left ]]; then echo "not run since $last, because the time was over:$left"; fi
[[ $limit == 14400 && ! $left && $failed == 0 ]] || exit "$failed"
RESULT="The last \`make test-all\` that has passed: commit \`$commit\`, $(date -u +%F), $((SECONDS / 60)) minutes. Seconds of its steps:"$'\n'"$result." \
  perl -0pi -e 's/(<!-- make test-all writes this -->\n).*(?=\n<!-- until here -->)/$1$ENV{RESULT}/s or die' docs/reliability.md
