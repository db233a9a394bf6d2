package config

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// rig is a Reloader on a file. It records the applied configurations and the reports.
type rig struct {
	*Reloader
	t        *testing.T
	path     string
	taken    []*Config
	reported []bool
}

func (r *rig) ConfigReloaded(ok bool) { r.reported = append(r.reported, ok) }

func newRig(t *testing.T, content string) *rig {
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "topics.yaml")}
	r.write(content)
	running := must.Get(Load(r.path))(t)
	r.Reloader = NewReloader(ReloadOptions{
		File: r.path, Running: running, Checked: r.ConfigReloaded,
		Apply: func(c *Config) { r.taken = append(r.taken, c) },
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

// TestReloader_ReportsEveryAppliedChangeWhenTheCallerCancels: a change is applied and reported, or neither.
func TestReloader_ReportsEveryAppliedChangeWhenTheCallerCancels(t *testing.T) {
	for _, when := range []string{"before it is applied", "while it is applied"} {
		r := newRig(t, "buckets: [10s]\n")
		ctx, cancel := context.WithCancel(t.Context())
		if when == "while it is applied" {
			r.o.Apply = func(c *Config) { r.taken = append(r.taken, c); cancel() }
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
