package reload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"orderclose/internal/config"
)

// rig is a Reloader on a file, and what it does.
type rig struct {
	*Reloader
	t     *testing.T
	path  string
	world error // what May says
	taken []*config.Config
	told  []bool
}

func (r *rig) ConfigReloaded(ok bool) { r.told = append(r.told, ok) }

func newRig(t *testing.T, content string) *rig {
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "topics.yaml")}
	r.write(content)
	running, err := config.Load(r.path)
	if err != nil {
		t.Fatal(err)
	}
	r.Reloader, err = New(Options{
		File: r.path, Running: running, Metrics: r,
		May:  func(context.Context, *config.Config) error { return r.world },
		Take: func(c *config.Config) { r.taken = append(r.taken, c) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) write(content string) {
	r.t.Helper()
	if err := os.WriteFile(r.path, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// look lets the Reloader notice the file, and requires that it was taken so often
// since the beginning, and that the last was told to be right or wrong.
func (r *rig) look(when string, taken int, ok bool) {
	r.t.Helper()
	if _, err := r.Reloader.look(r.t.Context(), false); (err == nil) != ok {
		r.t.Errorf("%s: %v", when, err)
	}
	if len(r.taken) != taken || r.told[len(r.told)-1] != ok {
		r.t.Errorf("%s: taken %d times, want %d; told %v, want %v", when, len(r.taken), taken, r.told, ok)
	}
}

func TestReloader_TakesAFileWholeOrNotAtAll(t *testing.T) {
	first, second := "buckets: [10s]\n", "buckets: [10s, 1m]\n"
	r := newRig(t, first)
	r.look("as it was", 0, true)
	r.write(second)
	r.look("changed", 1, true)
	told := len(r.told)
	r.look("the same content", 1, true)
	if len(r.told) != told {
		t.Error("the same content was judged again")
	}
	r.write("buckets: [10s, 1m, 5m]\ndelays: {default: 0s}\n")
	r.look("half of it is wrong", 1, false)
	r.look("and still is", 1, false)
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.look("no file", 1, false)
	r.write(second)
	r.look("right again, and as it was", 1, true)
	r.write("# with a comment\n" + second)
	r.look("another content that says the same", 1, true)
	r.write(second + "closer: {batch: 7}\n")
	if changes, err := r.Reload(t.Context()); err != nil || len(changes) != 1 || changes[0].Live || len(r.taken) != 1 {
		t.Errorf("what is not live: %v, %v, taken %d times", changes, err, len(r.taken))
	}
}

func TestReloader_WhatTheWorldRefusesIsTriedAgain(t *testing.T) {
	r := newRig(t, "buckets: [10s, 1m]\n")
	r.world = errors.New("it still holds records")
	r.write("buckets: [10s]\n")
	r.look("refused", 0, false)
	r.look("refused again", 0, false)
	r.world = nil
	r.look("empty by now", 1, true)
}

// TestReloader_ACallerWhoGoesAwayLeavesNothingUntold: a change is taken and told, or
// neither.
func TestReloader_ACallerWhoGoesAwayLeavesNothingUntold(t *testing.T) {
	for _, when := range []string{"before it is taken", "then"} {
		r := newRig(t, "buckets: [10s]\n")
		ctx, cancel := context.WithCancel(t.Context())
		if when == "then" {
			r.o.Take = func(c *config.Config) { r.taken = append(r.taken, c); cancel() }
		} else {
			r.o.May = func(context.Context, *config.Config) error { cancel(); return nil }
		}
		r.write("buckets: [10s, 1m]\n")
		changes, err := r.Reload(ctx)
		if taken := when == "then"; (err == nil) != taken || len(changes) == 1 != taken || len(r.taken) == 1 != taken || len(r.told) == 1 != taken {
			t.Errorf("gone %s: %v, %v; taken %d times, told %v", when, changes, err, len(r.taken), r.told)
		}
		r.look("the next one", 1, true)
	}
}
