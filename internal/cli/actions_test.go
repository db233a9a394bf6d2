package cli

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// Without a database the audit log is in the control topic. A command that only shows something is not in it.
func TestBroker_TheAuditLogHasWhatACommandHasDone(t *testing.T) {
	r := newRig(t)
	for _, args := range [][]string{{"topics", "apply", "--quiet"}, {"topics", "check"}, {"dlq", "redrive"}, {"dlq", "discard", "--cause", "x", "--yes"}} {
		_, stderr, code := r.cli(args...)
		must.That(t, code == 0 && !strings.Contains(stderr, "audit log"), "%v exits with %d: %s", args, code, stderr)
	}
	job := map[string]string{environ.EnvBrokers: r.brokers, environ.EnvDSN + "_FILE": "/nowhere"} // it mounts only the Secret that it needs
	_, stderr, code := run(t, job, "dlq", "discard", "--cause", "y", "--yes", "--config", r.file)
	must.That(t, code == 0 && !strings.Contains(stderr, "audit log"), "exit %d: %s", code, stderr)
	var kept []string
	_, end, err := r.kafka.Bounds(t.Context(), r.cfg.Topics.Control, 0)
	must.Do(t, err)
	must.Do(t, reads.Log{Cluster: r.kafka}.ReadSpan(t.Context(), r.cfg.Topics.Control, reads.Span{End: end}, func(records []wire.RawRecord) error {
		for _, record := range records {
			if m := must.Get(record.Message())(t); string(m.Key) == "action" {
				kept = append(kept, string(m.Value))
			}
		}
		return nil
	}))
	must.That(t, len(kept) == 3, "%q", kept)
	for i, want := range []string{"orderclose topics apply --config=", "orderclose dlq discard --cause=x", "orderclose dlq discard --cause=y"} {
		expect.That(t, strings.Contains(kept[i], want) && strings.Contains(kept[i], `"result":"done"`) && strings.Contains(kept[i], operator()), "%s", kept[i])
	}
}

func TestActions_PrintsTheAuditLog(t *testing.T) {
	golden(t, "actions", func(w io.Writer) {
		printActions(w, nil)
		at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		printActions(w, []store.Action{{At: at, Who: "ann@laptop", Action: "orderclose dlq discard --cause=x --yes=true", Result: "done"}})
	})
}

// Each command with a flag --yes is in the list, and each of the list exists.
func TestActing_NamesCommands(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "orderclose ")
		expect.That(t, cmd.Flags().Lookup("yes") == nil || slices.Contains(acting, name), "%s has --yes, and is not in the list", name)
		for _, below := range cmd.Commands() {
			look(below)
		}
	}
	look(Root())
	for _, name := range acting {
		cmd, rest, err := Root().Find(strings.Fields(name))
		expect.That(t, err == nil && len(rest) == 0 && cmd.CommandPath() == "orderclose "+name, "%s: %v %v", name, cmd.CommandPath(), err)
	}
}

// What a command has done decides, and not which flag was written: each command with each value of each flag that says whether it acts.
func TestActs_ByTheValuesOfFlags(t *testing.T) {
	values := map[string][]string{"yes": {"", "=true", "=false", "=0"}, "dry-run": {"", "=true", "=false", "=1"}, "print": {"=mysql", "="}}
	for _, name := range acting {
		has := func(flag string) bool {
			cmd, _, _ := Root().Find(strings.Fields(name))
			return cmd.Flags().Lookup(flag) != nil
		}
		sets := [][]string{nil}
		for _, flag := range []string{"yes", "dry-run", "print"} {
			for _, set := range sets {
				for _, value := range values[flag] {
					if has(flag) {
						sets = append(sets, append(slices.Clone(set), "--"+flag+value))
					}
				}
			}
		}
		for _, set := range sets {
			cmd, _, _ := Root().Find(strings.Fields(name))
			must.Do(t, cmd.ParseFlags(set))
			yes := slices.Contains(set, "--yes") || slices.Contains(set, "--yes=true")
			dry := slices.Contains(set, "--dry-run") || slices.Contains(set, "--dry-run=true") || slices.Contains(set, "--dry-run=1")
			want := (yes || !has("yes")) && !dry && !slices.Contains(set, "--print=mysql")
			expect.That(t, acts(cmd) == want, "%s %v: it counts as an action: %v, want %v", name, set, acts(cmd), want)
		}
	}
}
