package shadow

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/cli/clitest"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/pipelinetest"
	"github.com/orderclose/orderclose/room"
)

// The role creates its topic, beside a database without any table of ours, and the report compares
// its verdicts with the rows.
func TestReport_ComparesAShadowRunWithTheOldJob(t *testing.T) {
	t.Parallel()
	servers := must.Get(pipelinetest.Start(pipelinetest.Options{}))(t)
	defer servers.Close()
	connections := must.Get(servers.Connect("shadow"))(t)
	defer connections.Close()
	k := clients.Of(connections).Kafka
	db := must.Get(sqlite.Open(sqlite.Memory, nil))(t)
	defer db.Close()
	must.Do(t, db.Migrate(t.Context()))
	cfg := must.Get(config.Parse("topics.yaml", []byte("buckets: [1m, 1h]\npartitions: 2\n")))(t)
	app := must.Get(pipeline.New(pipeline.Options{Config: cfg, Connections: clients.Clients{Kafka: k, Store: db}, Rooms: []room.Room{Room()}}))(t)
	defer app.Close()
	must.Do(t, app.CreateTopics(t.Context()))
	run := func(limit int) (out output, findings string, err error) {
		result, err := reportIn(t.Context(), room.Host{Config: cfg, Kafka: k, Store: db}, limit,
			ReportOptions{From: time.Now().Add(-time.Hour), To: time.Now(), Tolerance: time.Minute})
		if err == nil {
			out = result.JSON.(output)
		}
		return out, result.Findings, err
	}
	_, _, err := run(10)
	expect.Says(t, err, "orderclose run shadow creates it", "without the topic")
	due := time.Now().Add(-30 * time.Minute).Truncate(time.Millisecond)
	closedAt := map[string]time.Duration{"same": time.Second, "earlier": 29 * time.Minute, "unsent": time.Minute, "paid": time.Minute}
	for _, id := range []string{"same", "earlier", "unsent", "paid", "forgotten", "also forgotten"} {
		must.Do(t, scenario.OrdersOf(db).CreateOrder(t.Context(), orderclose.Order{ID: id, CreatedAt: due.Add(-time.Hour), Due: due}, nil))
		if id != "unsent" {
			m := must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: time.Now(), Due: due}, Release: due}.Encode())(t)
			must.Get(k.Append(t.Context(), cfg.Topics.Close, kafka.PartitionOf([]byte(id), cfg.Partitions), []wire.Message{m}))(t)
		}
	}
	exec := func(query string, args ...any) {
		t.Helper()
		must.Get(db.DB().ExecContext(t.Context(), query, args...))(t)
	}
	exec("UPDATE orders SET status = 1 WHERE id = 'paid'")
	for _, table := range mapping.OwnTables() {
		exec("DROP TABLE " + table)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- app.Run(ctx, "shadow") }()
	defer func() {
		cancel()
		expect.NoError(t, <-ran)
	}()
	var report output
	storetest.Await(t, "five verdicts", func() (string, bool) {
		if out, findings, _ := run(0); findings != "" {
			report = out
		}
		return fmt.Sprintf("%+v", report.Summary), report.Summary.Verdicts >= 5
	})
	// The shadow run saw these orders now, half an hour after they were due.
	seen := report.Summary.Last
	for id, after := range closedAt {
		at := due.Add(after)
		if id == "same" || id == "earlier" {
			at = seen.Add(after)
		}
		exec("UPDATE orders SET status = 2, closed_at = ? WHERE id = ?", at.UnixMilli(), id)
	}
	report, findings, err := run(1)
	got := map[Class]string{}
	for _, d := range report.Differences {
		got[d.Class] += d.Order
	}
	sum := report.Summary
	if err != nil || findings != "5 of 6 orders differ" || got[Earlier] != "earlier" || got[OnlyWe] != "also forgotten" || got[OnlyThey] != "paid" ||
		len(report.Differences) != 3 ||
		sum.Classes[Same] != 1 || sum.OnlyWe["unpaid"] != 2 || sum.OnlyThey["already_paid"] != 1 || sum.OnlyThey["no_record"] != 1 ||
		sum.Orders != 6 || sum.Verdicts != 5 {
		t.Errorf("%q, %v: %+v", findings, err, report)
	}
	must.Get(json.Marshal(report))(t)
	specs, err := k.Topics(t.Context(), "shadow")
	state := specs["shadow"]
	expect.That(t, err == nil && state.Partitions == cfg.Partitions && state.Config["retention.ms"] == "1209600000", "the topic is %+v, %v", state, err)
	if left, err := k.Check(t.Context(), room.Topics([]room.Room{Room()}, cfg)); err != nil || len(left) > 0 {
		t.Errorf("the topics drift: %v, %v", left, err)
	}
}

// topics apply creates the topic if topics.yaml has the section.
func TestRoom_TheTopicIsAmongThoseOfThePipelineIfTheFileNamesIt(t *testing.T) {
	rooms := []room.Room{Room()}
	for text, want := range map[string]string{"": "", "shadow: {}": "eu.shadow", "shadow:": "eu.shadow"} {
		cfg := must.Get(config.Parse("topics.yaml", []byte("buckets: [1m]\ntopics: {prefix: eu.}\n"+text), room.Sections(rooms)...))(t)
		specs := room.Topics(rooms, cfg)
		got := specs[len(specs)-1]
		if len(specs) == 5 { // those of the core
			got = room.TopicSpec{}
		}
		expect.That(t, got.Name == want && (want == "" || got.Group == "eu.orderclose-shadow-order-close"), "%q: %+v", text, got)
	}
}

func TestShadow_Table(t *testing.T) {
	difference := func(class Class, id, what string) Difference {
		return Difference{Class: class, Order: id, Due: at, What: what}
	}
	out := output{
		Differences: []Difference{
			difference(OnlyThey, "o-4", "they closed it at 2026-11-20T13:00:00.000Z; no record of it was read"),
			difference(Earlier, "o-1", "we would have closed it at 2026-11-20T12:00:00.004Z, 3m11s before they did"),
			difference(Earlier, "o-2", "we would have closed it at 2026-11-20T12:00:00.006Z, 3m10.998s before they did"),
			difference(OnlyWe, "o-3", "we would have closed it at 2026-11-20T12:00:00.003Z; it is WAIT_PAY"),
		},
		Summary: Summary{
			From: at, To: at.Add(24 * time.Hour), Tolerance: "1m0s", Orders: 1_200, Different: 204, TimesCompared: true, Untimed: 2,
			Classes: map[Class]int{Same: 696, Earlier: 202, OnlyWe: 1, OnlyThey: 1, Neither: 299, Recent: 1},
			OnlyWe:  map[string]int{"WAIT_PAY": 1}, OnlyThey: map[string]int{"no_record": 1},
			Verdicts: 1_198, First: at.Add(4 * time.Millisecond), Last: at.Add(24 * time.Hour), Unreadable: 1,
		},
	}
	golden(t, "shadow", out.table)
	golden(t, "shadow_nothing", func(w io.Writer) {
		output{Summary: Summary{From: at, To: at.Add(time.Hour), Tolerance: "1m0s"}}.table(w)
	})
}

// at is the beginning of the window.
var at = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// golden compares the output of table with testdata/NAME.txt. UPDATE_GOLDEN=1 writes the files.
func golden(t *testing.T, name string, table func(w io.Writer)) {
	t.Helper()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	table(w)
	must.Do(t, w.Flush())
	path := filepath.Join("testdata", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
	expect.Same(t, out.String(), string(must.Get(os.ReadFile(path))(t)), "%s", path)
}

func TestCommands_RefuseWrongArguments(t *testing.T) {
	clitest.Refuses(t, Room(), map[string]string{
		"shadow report":                            "--from is missing",
		"shadow report --from 1h --to 2h":          "is not before",
		"shadow report --from 1h --tolerance none": "--tolerance",
		"shadow report --from 1h --limit -1":       "--limit",
		"shadow report --from 1h":                  config.EnvDSN,
		"shadow run":                               "unknown command",
		"run shadow":                               config.EnvDSN,
		"run shadow relay closer":                  "without closer and compensator",
		"run all shadow":                           "without closer and compensator",
	})
}
