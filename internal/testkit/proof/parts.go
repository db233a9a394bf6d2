package main

// part is a step of make test-all that .ci/run plays only after a change of the code that it tests.
type part struct {
	name    string
	command []string
}

// parts are such steps, in the order in which .ci/run plays them. They share a time limit, so the quick ones come first.
var parts = []part{
	{"bench", module("bench")},
	{"bench/peers", module("bench/peers")},
	{"deploy/grafana", module("deploy/grafana")},
	{"deploy/kubetest", module("deploy/kubetest")},
	{"deploy/release", module("deploy/release")},
	{"examples/embed", module("examples/embed")},
	{"internal/testkit/tracing", module("internal/testkit/tracing")},
	{"internal/testkit/transactions", module("internal/testkit/transactions")},
	{"payments", module("payments")},
	{"pgxtx", module("pgxtx")},
	{"connectors", []string{"make", "test-connectors"}},
	{"without", []string{"make", "without"}},
	{"upgrade", []string{"make", "test-upgrade"}},
	{"mutants", []string{"make", "mutants"}},
	{"console", []string{"make", "test-console"}},
	{"game day", []string{"make", "test-ops"}},
	{"scenarios", []string{"env", "RING=all", "make", "test"}},
}

// module is the command that runs the tests of a module of its own.
func module(dir string) []string { return []string{"make", "modules", "MODULES=" + dir} }

// folder is a folder of the tree, and the parts that test its code beside make test. A file belongs to the longest
// folder that is the beginning of its path.
type folder struct {
	path  string
	parts []string
}

// folders has each folder with code. Mutants need no entry: those of a changed folder are played, and of the others an
// eighth in turn. Modules are vetted for each change, so a change of the product's API that breaks one is found by make lint.
var folders = []folder{
	{"", nil}, // files of the root
	{".ci/", nil},
	{".goreleaser.yaml", []string{"deploy/release"}},
	{"admin/", []string{"examples/embed"}},
	{"bench/", []string{"bench"}},
	{"bench/peers/", []string{"bench/peers"}},
	{"closer/", nil},
	{"closer/payment/", []string{"payments"}},
	{"cmd/", nil},
	{"cmd/orderclose-dev/", []string{"console"}},
	{"compensator/", nil},
	{"delayrelay/", nil},
	{"deploy/", nil},
	{"deploy/alerts/", []string{"game day"}},
	{"deploy/compose/", nil},
	{"deploy/consoletest/", []string{"console"}},
	{"deploy/grafana/", []string{"deploy/grafana"}},
	{"deploy/helm/", []string{"deploy/kubetest"}},
	{"deploy/helm/orderclose/alerts/", []string{"deploy/kubetest", "game day"}},
	{"deploy/helm/orderclose/dashboards/", []string{"deploy/grafana"}},
	{"deploy/kubetest/", []string{"deploy/kubetest"}},
	{"deploy/native/", []string{"scenarios"}},
	{"deploy/native/debezium", []string{"connectors"}},
	{"deploy/release/", []string{"deploy/release"}},
	{"deploy/systemd/", nil},
	{"docs/", nil},
	{"docs/runbook.md", []string{"game day"}},
	{"examples/", nil},
	{"examples/embed/", []string{"examples/embed"}},
	{"internal/backlog/", []string{"game day"}},
	{"internal/cli/", []string{"game day"}},
	{"internal/clients/", nil},
	{"internal/clock/", []string{"scenarios"}},
	{"internal/closing/", nil},
	{"internal/config/", []string{"upgrade"}},
	{"internal/console/", []string{"console"}},
	{"internal/control/", []string{"game day"}},
	{"internal/deadletters/", []string{"game day"}},
	{"internal/environ/", []string{"upgrade"}},
	{"internal/health/", []string{"game day"}},
	{"internal/httpcall/", []string{"payments"}},
	{"internal/kafka/", []string{"upgrade", "scenarios"}},
	{"internal/lock/", nil},
	{"internal/metrics/", []string{"deploy/grafana"}},
	{"internal/ops/", []string{"game day"}},
	{"internal/overdue/", nil},
	{"internal/partition/", nil},
	{"internal/reload/", []string{"upgrade"}},
	{"internal/retry/", nil},
	{"internal/runbook/", nil},
	{"internal/send/", nil},
	{"internal/signature/", []string{"payments"}},
	{"internal/store/", []string{"upgrade", "scenarios"}},
	{"internal/text/", nil},
	{"internal/testkit/", nil},
	{"internal/testkit/mutants/", []string{"mutants"}},
	{"internal/testkit/chaosreal/", nil},
	{"internal/testkit/power/", nil},
	{"internal/testkit/realtest/", []string{"scenarios"}},
	{"internal/testkit/realtest/gameday", []string{"game day"}},
	{"internal/testkit/realtest/upgrade", []string{"upgrade"}},
	{"internal/testkit/simulation/", []string{"scenarios"}},
	{"internal/testkit/storetest/", []string{"scenarios"}},
	{"internal/testkit/tracing/", []string{"internal/testkit/tracing"}},
	{"internal/testkit/transactions/", []string{"internal/testkit/transactions"}},
	{"internal/tlsfault/", nil},
	{"internal/topics/", []string{"game day"}},
	{"internal/tracing/", []string{"internal/testkit/tracing"}},
	{"internal/wire/", []string{"upgrade"}},
	{"internal/works/", nil},
	{"outbox/", nil},
	{"payments/", []string{"payments"}},
	{"pgxtx/", []string{"pgxtx", "scenarios"}},
	{"pipeline/", []string{"examples/embed"}},
	{"pipeline/webconsole/", []string{"console"}},
	{"producer/", nil},
	{"room/", []string{"without"}},
	{"rooms/", []string{"without"}},
	{"rooms/intake/", []string{"connectors", "without"}},
	{"shops/", []string{"scenarios"}},
}
