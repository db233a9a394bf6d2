package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Without a database there is no audit log, and a command says nothing about it.
func TestBroker_WithoutADatabaseThereIsNoAuditLog(t *testing.T) {
	r := newRig(t)
	job := map[string]string{environ.EnvBrokers: r.brokers, environ.EnvDSN + "_FILE": "/nowhere"} // it mounts only the Secret that it needs
	for _, env := range []map[string]string{{environ.EnvBrokers: r.brokers}, job} {
		for _, command := range []string{"topics apply", "replay --dead-letters --from 1h --yes"} {
			_, stderr, code := run(t, env, append(strings.Fields(command), "--config", r.file)...)
			must.That(t, code == 0 && !strings.Contains(stderr, "audit log"), "%s: exit %d: %s", command, code, stderr)
		}
	}
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
