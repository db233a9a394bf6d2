package cli

import (
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/runbook"
)

// This command line accepts every command of the runbook.
func TestRunbook_UsesValidCommands(t *testing.T) {
	sections, err := runbook.Read("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range sections {
		for _, part := range runbook.Parts {
			for _, line := range s.Commands(part, "sh") {
				args := strings.Fields(line)
				if args[0] != "orderclose" {
					continue
				}
				n++
				cmd, rest, err := newRoot(Env{}).Find(args[1:])
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err == nil {
					err = cmd.ValidateArgs(cmd.Flags().Args())
				}
				if err == nil && cmd.Name() == "run" {
					_, err = rolesOf(cmd.Flags().Args(), false)
				}
				if err != nil || !cmd.Runnable() || cmd.HasSubCommands() {
					t.Errorf("section %q: %s: %v", s.Title, line, err)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("the runbook has %d commands only", n)
	}
}
