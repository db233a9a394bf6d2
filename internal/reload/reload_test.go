package reload

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// rig is a Reloader on a file. It records the applied configurations and the reports.
type rig struct {
	*Reloader
	t        *testing.T
	path     string
	taken    []*config.Config
	reported []bool
}

func (r *rig) ConfigReloaded(ok bool) { r.reported = append(r.reported, ok) }

func newRig(t *testing.T, content string) *rig {
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "topics.yaml")}
	r.write(content)
	running := must.Get(config.Load(r.path))(t)
	r.Reloader = New(Options{
		File: r.path, Running: running, Checked: r.ConfigReloaded,
		Apply: func(c *config.Config) { r.taken = append(r.taken, c) },
	})
	return r
}

func (r *rig) write(content string) {
	r.t.Helper()
	must.Do(r.t, os.WriteFile(r.path, []byte(content), 0o600))
}

// check makes the Reloader check the file. taken is the expected number of applied
// configurations since the start, and ok whether the last check was accepted.
func (r *rig) check(when string, taken int, ok bool) {
	r.t.Helper()
	_, _ = r.Reloader.check(r.t.Context(), false) // of two reads in turn
	_, err := r.Reloader.check(r.t.Context(), false)
	expect.That(r.t, (err == nil) == ok, "%s: %v", when, err)
	expect.That(r.t, len(r.taken) == taken && r.reported[len(r.reported)-1] == ok,
		"%s: applied %d times, want %d; reported %v, want %v", when, len(r.taken), taken, r.reported, ok)
}

func TestReloader_AppliesAWholeFileOrNothing(t *testing.T) {
	first, second := "buckets: [10s]\n", "buckets: [10s, 1m]\n"
	r := newRig(t, first)
	r.check("unchanged", 0, true)
	r.write(second)
	r.check("changed", 1, true)
	reported := len(r.reported)
	r.check("the same content", 1, true)
	expect.Equal(t, len(r.reported), reported, "the same content was checked again")
	r.write("buckets: [10s, 1m, 5m]\ndelays: {default: 0s}\n")
	r.check("half of it is wrong", 1, false)
	r.check("and still is", 1, false)
	must.Do(t, os.Remove(r.path))
	r.check("no file", 1, false)
	r.write(second)
	r.check("valid again, and unchanged", 1, true)
	r.write("# with a comment\n" + second)
	r.check("another content with the same settings", 1, true)
	r.write(second + "closer: {target_latency: 7s}\n")
	if changes, err := r.Reload(t.Context()); err != nil || len(changes) != 1 || changes[0].Live || len(r.taken) != 1 {
		t.Errorf("a setting that is not live: %v, %v, applied %d times", changes, err, len(r.taken))
	}
}

// A program may write the file in several steps, and its first lines may be a file without mistakes.
func TestReloader_RunAppliesNoFileThatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "buckets: [10s]\n")
		go r.Run(t.Context())
		for _, content := range []string{"buckets: [10s, 1m]\n", "buckets: [10s, 1m]\n# one\n", "buckets: [10s, 1m]\n# one\n# two\n"} {
			time.Sleep(pollInterval + 1)
			expect.Equal(t, len(r.taken), 0, "applied files")
			r.write(content)
		}
		time.Sleep(2 * pollInterval)
		expect.Equal(t, len(r.taken), 1, "applied files")
	})
}

// TestReloader_ReportsEveryAppliedChangeWhenTheCallerCancels: a change is applied and reported, or neither.
func TestReloader_ReportsEveryAppliedChangeWhenTheCallerCancels(t *testing.T) {
	for _, when := range []string{"before it is applied", "while it is applied"} {
		r := newRig(t, "buckets: [10s]\n")
		ctx, cancel := context.WithCancel(t.Context())
		if when == "while it is applied" {
			r.o.Apply = func(c *config.Config) { r.taken = append(r.taken, c); cancel() }
		} else {
			cancel()
		}
		r.write("buckets: [10s, 1m]\n")
		changes, err := r.Reload(ctx)
		if taken := when == "while it is applied"; (err == nil) != taken || len(changes) == 1 != taken || len(r.taken) == 1 != taken ||
			len(r.reported) == 1 != taken {
			t.Errorf("canceled %s: %v, %v; applied %d times, reported %v", when, changes, err, len(r.taken), r.reported)
		}
		r.check("the next one", 1, true)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parseText(t *testing.T, content string) *config.Config {
	t.Helper()
	c := must.Get(config.Parse("t", []byte(content)))(t)
	return c
}

const full = `
topics: {prefix: a-}
buckets: [10s, 5m]
delays: {default: 1h, categories: {x: 5m, y: 6m}, max: 1d}
closer: {http: {url: "https://shop.example/close"}}
orders:
  table: t
  id: {column: id, type: integer}
  status: {column: s, from: 0, to: 1}
  due: {column: d, type: datetime, zone: "+08:00", precision: s}
  items: none
  stock: none
`

func TestChanges_UsesTheKeysOfTheFile(t *testing.T) {
	from := parseText(t, `
topics: {prefix: a-}
buckets: [10s, 1m, 2h]
delays: {default: 1h, categories: {x: 5m, z: 6m}}
closer: {http: {url: "https://shop.example/close", batch: 3}}
kafka: {session_timeout: 9s}
`)
	want := []Change{
		{"buckets.1m", "listed", "", true}, {"buckets.2h", "listed", "", true}, {"buckets.5m", "", "listed", true},
		{"closer.http.batch", "3", "200", false},
		{"delays.categories.y", "", "6m", true}, {"delays.categories.z", "6m", "", true},
		{"delays.max", "30d", "1d", true},
		{"kafka.session_timeout", "9s", "30s", false},
	}
	var got []Change
	for _, c := range Changes(from, parseText(t, full)) {
		if c.Key[:6] != "orders" {
			got = append(got, c)
		}
	}
	expect.Same(t, got, want, "changes")
	all := Changes(from, parseText(t, full))
	expect.That(t, len(all) != len(want), "the mapping of orders is not compared")
}

// TestChanges_ShowsRules: a rule that only moved to another line is no change, and any other difference is.
func TestChanges_ShowsRules(t *testing.T) {
	const one = "buckets: [10s]\norders: {table: t, id: id, status: {column: s, from: 0, to: 1}, due: {column: d, type: unix_s}, items: none, stock: none, " +
		"attributes: {pay: pay_type}}\n" +
		"delays:\n  categories: {a: 5m}\n  rules:\n  - {match: {category: a, attributes: {pay: [x, 3]}}, after: 9m, grace: 1m, remind: [1m, 2m]}\n"
	from := parseText(t, one+"  - {match: {}, after: never}\n")
	all := Changes(from, parseText(t, one+"\n  # later\n  - {match: {}, after: never}\n"))
	expect.That(t, len(all) <= 0, "only a line moved: %v", all)
	got := Changes(from, parseText(t, one+"  - {match: {attributes: {pay: y}}, after: 2m}\n"))
	want := []Change{{"delays.rules[1]", "every order: never", "pay y: after 2m", true}}
	expect.Same(t, got, want, "changes")
	if got, want := config.DescribeRule(from.Delays.Rules[0]), "category a, pay x or 3: after 9m grace 1m remind 2m 1m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e := Effective(parseText(t, one+"accept: [long_smallest_bucket]\n"), from)
	expect.That(t, len(e.Delays.Rules) == 2, "a reload applies no rules: %+v", e.Delays)
	other := parseText(t, strings.Replace(one, "pay: pay_type", "pay: how", 1)) // the running mapping reads another column
	got, e = Changes(other, from), Effective(other, from)
	expect.That(t, len(e.Delays.Rules) == 1 && !slices.ContainsFunc(got, func(c Change) bool { return c.Live }), "rules do not wait: %+v, %v", e.Delays, got)
}

// TestChanges_ComparesListsOfTablesByValue: the same file read twice has no change, and a change shows values.
func TestChanges_ComparesListsOfTablesByValue(t *testing.T) {
	mapped := strings.Replace(full, "  items: none\n  stock: none\n", `  closed_at: [{column: gone, type: unix_s}, {column: seen, type: unix_s}]
  items: {table: lines, order: order_id, sku: sku, quantity: n}
  stock:
  - {table: goods, sku: {column: id, type: integer}, available: free, reserved: held, lock: {column: at, type: unix_ms}}
  - {table: parents, sku: id, line: parent, available: free}
`, 1)
	all := Changes(parseText(t, mapped), parseText(t, mapped))
	expect.That(t, len(all) <= 0, "nothing changed: %v", all)
	edit := strings.NewReplacer("lock: {column: at", "lock: {column: changed_at", "table: parents", "table: totals", "column: seen", "column: ended")
	changed := edit.Replace(mapped)
	want := []Change{
		{"orders.closed_at[1].column", "seen", "ended", false},
		{"orders.stock.lock.column", "at", "changed_at", false},
		{"orders.stock[1].table", "parents", "totals", false},
	}
	expect.Same(t, Changes(parseText(t, mapped), parseText(t, changed)), want, "changes")
}

func TestEffective_UsesLiveSettingsAndKeepsTheRest(t *testing.T) {
	running := parseText(t, "buckets: [10s]\ntopics: {prefix: old-}\ncloser: {target_latency: 7s}\n")
	given := parseText(t, "buckets: [10s, 1m]\ntopics: {prefix: new-}\ncloser: {target_latency: 8s}\npartitions: 3\ndelays: {default: 9m}\n")
	e := Effective(running, given)
	want := orderclose.Buckets{{Topic: "old-delay_10s", Length: 10 * time.Second}, {Topic: "old-delay_1m", Length: time.Minute}}
	expect.Same(t, e.Buckets, want, "buckets")
	expect.That(t, e.Closer.TargetLatency == 7*time.Second && e.Topics.Prefix == "old-" && e.Partitions == 3 && e.Delays.Default == 9*time.Minute, "%+v", e)
	for _, c := range Changes(running, e) {
		expect.That(t, c.Live, "%v is not live and was applied", c)
	}
}
