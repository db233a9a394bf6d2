# One target for each thing a person does. ARGS goes to the program:
#   make demo ARGS='--orders 500'      make test ARGS='-run Relay -v'
MAKEFLAGS += --no-print-directory
export SEED SEEDS FIRST
# Modules of their own: what they need, the module of the product does not.
MODULES := dev/bench dev/bench/peers deploy/consoletest deploy/grafana deploy/kubetest deploy/release examples/embed internal/testkit/tracing internal/testkit/transactions payments pgxtx
.DEFAULT_GOAL := help
# Without data for a debugger, everything compiles in 87 % of the time (250 s of CPU became 221 s).
# Targets with the same flags share what is compiled. A program for users is built without them.
demo serve unit test test-all race test-ops test-upgrade test-old-servers race-payments test-console modules chaos mutants vet staticcheck: export GOFLAGS := $(strip $(GOFLAGS) -gcflags=all=-dwarf=false)
.PHONY: help demo serve unit test test-all race test-ops test-upgrade test-kafkas test-old-servers race-payments test-console unit chaos chaos-real test-power mutants kubetest bench-relay bench-idle bench-close bench-outbox bench-sweep bench-peers dashboards modules lint gofmt vet staticcheck advisories up down build release release-check release-tools clean runbook-url module

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the whole pipeline in one process, without any server
	@echo "compiling, the first time for one to two minutes" >&2
	go run ./cmd/orderclose-dev demo $(ARGS)

serve: ## a shop and the whole pipeline on embedded servers, until Ctrl-C
	@echo "compiling, the first time for one to two minutes" >&2
	go run ./cmd/orderclose-dev serve $(ARGS)

# Some packages wait more than they compute: two for each processor.
unit: ## the tests that need no server, with few seeds: a minute
	go test -short -vet=off -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) ./... $(ARGS)

test: ## each promise, each database and each real server at least once; it starts and stops the servers: five minutes
	REQUIRE_REAL=1 deploy/native/test.sh $(ARGS)

test-all: ## everything: lint, every scenario on every database, race detector, seeds, game day, upgrade, modules, browser, mutants; half an hour
	@MODULES='$(MODULES)' deploy/native/test-all.sh

test-changed: ## the steps of test-all whose code has changed since the last one that docs/reliability.md records; eight minutes at most
	@MODULES='$(MODULES)' deploy/native/test-all.sh changed

# The packages with goroutines on fakes, the suite of the store on SQLite, which the detector makes ten times slower, and
# thirty random worlds. Programs on real servers are built
# without the detector. -cpu 1: it crashes if two goroutines of a bubble of testing/synctest run timers at the same time
# (seen with Go 1.26). It finds races nevertheless, because it compares the order of events, not their times.
RACE := ./closer/... ./compensator ./delayrelay ./outbox ./pipeline ./producer ./internal/backlog ./internal/kafka/... ./internal/ops ./internal/partition ./internal/reminders ./internal/retry ./internal/send ./webhook

race: ## the race detector on the packages without servers, and on thirty random worlds
	deploy/native/install.sh gcc
	REQUIRE_REAL= go test -race -short -vet=off -cpu 1 -count=1 -timeout 30m $(RACE) $(ARGS)
	go test -race -short -vet=off -cpu 1 -count=1 -run '^TestSuite_InMemory$$' ./internal/store/sqlite
	go test -race -c -o bin/race.test ./internal/testkit/simulation
	cd internal/testkit/simulation && CHAOS=drive SEEDS=30 GOMAXPROCS=1 ../../../bin/race.test

test-ops: ## a game day: cause almost every alert on real servers, and do what the runbook says; about six minutes
	GAMEDAY=1 REQUIRE_REAL=1 PACKAGES=./internal/testkit/realtest deploy/native/test.sh -run '^TestGameDay$$' -parallel 8 -v $(ARGS)

test-upgrade: ## the program of an earlier commit (FROM=HEAD^) is replaced by this one and back, under load on real servers; two minutes
	UPGRADE_FROM=$(or $(FROM),HEAD^) REQUIRE_REAL=1 PACKAGES=./internal/testkit/realtest deploy/native/test.sh -run '^TestUpgrade_' -v $(ARGS)

test-kafkas: ## rounds end to end and a killed broker on several versions of Kafka, which it installs; a table at the end; two minutes each (KAFKA_VERSIONS="3.9.2 4.4.0")
	@deploy/native/test-kafkas.sh $(ARGS)

test-old-servers: ## the suite of the store, and the shops, on the older MariaDB and MySQL that install.sh gets with OLD_SERVERS=1; two minutes
	env -u ORDERCLOSE_DB_DSN -u ORDERCLOSE_MYSQL_DSN OLD_SERVERS=1 REQUIRE_REAL=1 PACKAGES='./internal/store/... ./examples/...' deploy/native/test.sh $(ARGS)

race-payments: ## 10,000 orders (RACE_PAYMENTS=3000: so many) that are paid within half a second of their close, on one database after the other and a faulty provider, judged by database and ledger; four minutes each
	RING=all RACE_PAYMENTS=$(or $(RACE_PAYMENTS),10000) REQUIRE_REAL=1 PACKAGES=./internal/testkit/realtest deploy/native/test.sh -run '^TestReal_PaymentsRaceWithTheClose$$' -parallel 1 -v $(ARGS)

# The limit counts neither the installation nor the compiler.
test-console: ## the web console in a real browser, which it installs: pages, actions, a proxy with TLS, accessibility; some minutes
	deploy/native/install.sh chromium axe
	go build -o /dev/null ./cmd/orderclose-dev
	cd deploy/consoletest && REQUIRE_REAL=1 go test -count=1 -v -parallel 4 -timeout 10m . $(ARGS)

modules: ## the tests of the modules of their own: benchmarks, dashboards, Kubernetes, releases, example, payment providers, alerts to people, tracing; not test-console
	@for m in $(filter-out deploy/consoletest,$(MODULES)); do echo "go test $$m" && (cd $$m && go test -timeout 30m ./...) || failed="$$failed $$m"; done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

chaos: ## random worlds with faults of every kind, by seed (SEEDS=500; SEED=17 plays one again); JSON on stdout
	@go test -c -o bin/chaos.test ./internal/testkit/simulation
	@cd internal/testkit/simulation && CHAOS=drive ../../../bin/chaos.test

chaos-real: ## the pipeline on three brokers and MariaDB, disturbed by faults of every kind (MINUTES=10, SEED=1, DATABASE=postgres; a night: MINUTES=480); JSON on stdout; logs of a broken promise in bin/
	@deploy/native/chaos-real.sh

test-power: ## cut the power of brokers, database, Redis, and of everything, on one broker and on three, also in bursts of 100,000 orders, as root; half an hour (MINUTES=60: an hour each)
	go test -count=1 -v ./internal/testkit/power
	POWER=1 BROKERS=1 MINUTES=$(or $(MINUTES),6) LOGS=bin/power-1-logs deploy/native/chaos-real.sh
	POWER=1 BROKERS=1 KINDS=power-burst FAULTS=0.8 MINUTES=$(or $(MINUTES),8) LOGS=bin/power-burst-logs deploy/native/chaos-real.sh
	POWER=1 BROKERS=3 SYNC=always MINUTES=$(or $(MINUTES),6) LOGS=bin/power-3-logs deploy/native/chaos-real.sh

mutants: ## break the code on purpose, one place at a time, and see that a test fails; a table at the end; three minutes (of changed folders only: MUTANTS_IN='closer outbox')
	$(if $(MUTANTS_IN)$(MUTANTS_EIGHTH),,MUTANTS=1 )go test -count=1 -v -timeout 60m ./internal/testkit/mutants $(ARGS)

# -count=1: Go's cache of test results does not see changes outside of that module.
kubetest: ## the tests of the Helm chart
	cd deploy/kubetest && go test -count=1 ./... $(ARGS)

bench-relay: ## how fast the relay is, next to other loops; JSON on stdout (QUICK=1: a minute)
	@dev/bench/run.sh relay

bench-idle: ## what an idle relay costs, also among a thousand topics of others; JSON on stdout (QUICK=1: a minute)
	@dev/bench/run.sh idle

bench-close: ## how fast orders are closed, one by one and in batches, and end to end; JSON on stdout (QUICK=1: a minute)
	@dev/bench/run.sh close

bench-outbox: ## what an outbox row costs a checkout, and how fast such rows are dispatched; JSON on stdout (QUICK=1: a minute)
	@dev/bench/run.sh outbox

bench-sweep: ## finding and closing what is overdue in large tables, and the outbox; JSON on stdout (QUICK=1: a minute)
	@dev/bench/run.sh sweep

bench-peers: ## this project beside what a user would run instead; a line of JSON for each result; writes docs/comparison.md; hours (QUICK=1 PEERS="orderclose redis rabbitmq": five minutes)
	@dev/bench/peers/run.sh

dashboards: ## write the dashboards for Grafana, and try each query on a pipeline under load
	cd deploy/grafana && go run . && go test ./... $(ARGS)

lint: gofmt vet staticcheck ## gofmt, go vet and staticcheck

gofmt:
	@bad=$$(gofmt -l .) && if [ "$$bad" ]; then echo "gofmt wants to change:"; echo "$$bad"; exit 1; fi

vet:
	go vet ./...
	@for m in $(MODULES); do echo "go vet $$m" && (cd $$m && go vet ./...) || exit 1; done

staticcheck:
	go tool staticcheck ./...

advisories: ## which known vulnerabilities the code reaches, by govulncheck and a folder with Go's database (ADVISORIES=/tmp/vulndb: https://vuln.go.dev/vulndb.zip, unpacked)
	@test -n "$(ADVISORIES)" || echo "ADVISORIES names no folder, so the code was not compared with known vulnerabilities"
	@for m in $(if $(ADVISORIES),. $(MODULES)); do \
	  echo "govulncheck $$m" && go run -C $$m golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db "file://$(abspath $(ADVISORIES))" ./... || failed="$$failed $$m"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

up: ## start Kafka, MariaDB, MySQL, PostgreSQL and Redis, and print the variables that name them
	@deploy/native/up.sh

down: ## stop what make up has started
	@deploy/native/down.sh

build: ## all programs, into bin/
	go build -o bin/ ./cmd/orderclose ./cmd/orderclose-dev
	go build -C payments -o ../bin/ ./cmd/orderclose-payments

release release-check: export PATH := $(CURDIR)/bin:$(PATH)
release: release-tools ## archives, packages, image, SBOMs and checksums of a commit with a tag, into dist/ (ARGS=--snapshot: of any commit)
	deploy/release/release.sh dist $(ARGS)

release-check: release-tools ## build a release for all targets twice, the second time without a cache, and compare the bytes: some minutes
	deploy/release/check.sh

# They compile for some minutes the first time.
release-tools:
	GOBIN=$(CURDIR)/bin go install github.com/goreleaser/goreleaser/v2@v2.15.1
	GOBIN=$(CURDIR)/bin go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
	GOBIN=$(CURDIR)/bin go install aead.dev/minisign/cmd/minisign@v0.3.0

clean: ## remove what make build and make release have made
	rm -rf bin dist

runbook-url: ## where your runbook is, for the links of alerts and dashboards (of the console: ORDERCLOSE_RUNBOOK_URL): URL=https://wiki.example/orderclose/runbook
	@case "$(URL)" in https://*|http://*) ;; *) echo "name the page: make runbook-url URL=https://wiki.example/orderclose/runbook" >&2; exit 2;; esac
	@URL='$(URL)' perl -pi -e 's|(runbook_url: (&\S+ )?)\S*#|$$1$$ENV{URL}#|' deploy/alerts/*.test.yml deploy/helm/orderclose/alerts/*.rules.yml deploy/helm/orderclose/alerts/*/*.rules.yml
	@URL='$(URL)' perl -pi -e 's|^(const runbookURL = ").*"|$$1$$ENV{URL}"|' deploy/grafana/json.go && cd deploy/grafana && go run .

module: ## change the module's path, in a fork: MODULE=example.com/shop/orderclose
	@test -n "$(MODULE)" || { echo "name the new path: make module MODULE=example.com/shop/orderclose" >&2; exit 2; }
	@OLD=$$(go list -m) && grep -rlIF --exclude-dir=.git --exclude-dir=bin --exclude-dir=dist "$$OLD" . | OLD=$$OLD NEW='$(MODULE)' xargs perl -pi -e 's|\Q$$ENV{OLD}\E|$$ENV{NEW}|g'
	gofmt -w .
	go build ./...
