# One target for each thing a person does. ARGS goes to the program:
#   make demo ARGS='--orders 500'      make test ARGS='-run Relay -v'
MAKEFLAGS += --no-print-directory
export SEED SEEDS FIRST
.DEFAULT_GOAL := help
.PHONY: help demo serve test unit chaos mutants bench-relay bench-growth bench-waiting bench-idle bench-burst bench-close bench-outbox bench-sweep lint gofmt vet staticcheck up down build clean module

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the whole pipeline in one process, without any server
	go run ./cmd/orderclose-dev demo $(ARGS)

serve: ## a shop and the whole pipeline on embedded servers, until Ctrl-C
	go run ./cmd/orderclose-dev serve $(ARGS)

test: ## every test, on embedded and on real servers, which it starts and stops
	REQUIRE_REAL=1 deploy/native/test.sh $(ARGS)

unit: ## the tests that need no server
	go test ./... $(ARGS)
	cd bench && go test ./... $(ARGS)

chaos: ## random worlds with faults of every kind, by seed (SEEDS=500; SEED=17 plays one again); JSON on stdout
	@go test -c -o bin/chaos.test ./internal/testkit/simulation
	@cd internal/testkit/simulation && CHAOS=drive ../../../bin/chaos.test

mutants: ## break the code on purpose, one place at a time, and see that a test fails: some minutes; a table at the end
	MUTANTS=1 go test -count=1 -v -timeout 60m ./internal/testkit/mutants $(ARGS)

bench-relay: ## how fast the relay is, next to other loops; JSON on stdout (QUICK=1: a minute)
	@bench/run.sh relay

bench-growth: ## the relay with more partitions, processes, bytes; a table on stdout
	@bench/run.sh growth

bench-waiting: ## what a million parked records cost a relay; JSON on stdout (QUICK=1: a minute)
	@bench/run.sh waiting

bench-idle: ## what an idle relay costs, also among a thousand topics of others; JSON on stdout (QUICK=1: a minute)
	@bench/run.sh idle

bench-burst: ## many orders due at once, closed by the pipeline and by a poller; JSON on stdout (QUICK=1: a minute)
	@bench/run.sh burst

bench-close: ## how fast orders are closed, one by one and in batches, and end to end; JSON on stdout (QUICK=1: a minute)
	@bench/run.sh close

bench-outbox: ## what an outbox row costs a checkout, and how fast such rows are dispatched; JSON on stdout (QUICK=1: a minute)
	@bench/run.sh outbox

bench-sweep: ## finding and closing what is overdue in large tables, and the outbox; JSON on stdout (QUICK=1: a minute)
	@bench/run.sh sweep

lint: gofmt vet staticcheck ## gofmt, go vet and staticcheck

gofmt:
	@bad=$$(gofmt -l .) && if [ "$$bad" ]; then echo "gofmt wants to change:"; echo "$$bad"; exit 1; fi

vet:
	go vet ./...
	cd bench && go vet ./...
	cd examples/embed && go vet ./...

staticcheck:
	go tool staticcheck ./...

up: ## start Kafka, MariaDB, MySQL and Redis, and print the variables that name them
	@deploy/native/up.sh

down: ## stop what make up has started
	@deploy/native/down.sh

build: ## both binaries, into bin/
	go build -o bin/ ./cmd/orderclose ./cmd/orderclose-dev

clean: ## remove what make build has made
	rm -rf bin

module: ## change the module's path, in a fork: MODULE=example.com/shop/orderclose
	@test -n "$(MODULE)" || { echo "name the new path: make module MODULE=example.com/shop/orderclose" >&2; exit 2; }
	@OLD=$$(go list -m) && grep -rlIF --exclude-dir=.git --exclude-dir=bin "$$OLD" . | OLD=$$OLD NEW='$(MODULE)' xargs perl -pi -e 's|\Q$$ENV{OLD}\E|$$ENV{NEW}|g'
	gofmt -w .
	go build ./...
