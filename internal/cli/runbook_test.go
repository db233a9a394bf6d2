package cli

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
)

// accepted returns an error if this command line does not accept a command, and the roles of the command run.
func accepted(args []string) (roles []pipeline.Role, err error) {
	cmd, rest, err := newRoot(Env{}).Find(args)
	switch {
	case err != nil:
		return nil, err
	case !cmd.Runnable() || cmd.HasSubCommands():
		return nil, errors.New("a command is missing")
	}
	err = errors.Join(cmd.ParseFlags(rest), cmd.ValidateArgs(cmd.Flags().Args()))
	if err == nil && cmd.Name() == "run" {
		return rolesOf(cmd.Flags().Args())
	}
	return nil, err
}

// This command line accepts every command of the runbook.
func TestRunbook_UsesValidCommands(t *testing.T) {
	n := 0
	for _, s := range runbook.Sections() {
		for _, part := range s.Parts() {
			for _, line := range s.Commands(part.Name, "sh") {
				args := strings.Fields(line)
				if args[0] != "orderclose" {
					continue
				}
				n++
				_, err := accepted(args[1:])
				expect.That(t, err == nil, "section %q: %s: %v", s.Title, line, err)
			}
		}
	}
	expect.That(t, n >= 50, "the runbook has %d commands only", n)
}

func TestRunbook_ShowsASectionOrThoseThatAreNear(t *testing.T) {
	for _, row := range []struct {
		args []string
		code int
		want []string
	}{
		{nil, 0, []string{"redis-or-the-lock-is-down", "OrdercloseLockUnavailable", "changing-topics"}},
		{[]string{"redis-or-the-lock-is-down"}, 0, []string{"Redis or the lock is down\n\nAlerts: `OrdercloseLockUnavailable`", "\nVerify. ",
			"\norderclose doctor\n"}},
		{[]string{"Redis", "or", "the", "lock", "is", "down"}, 0, []string{"\norderclose doctor\n"}},
		{[]string{"ordercloseLockUnavailable"}, 0, []string{"Redis or the lock is down"}},
		{[]string{"orderClosere"}, 4, []string{"records-do-not-leave-a-delay-topic", "reminders-are-late"}},
		{[]string{"what", "is", "with", "redis?"}, 0, []string{"Redis or the lock is down"}},
		{[]string{"zebra"}, 4, []string{"orderclose runbook lists all"}},
	} {
		out, stderr, code := run(t, nil, append([]string{"runbook"}, row.args...)...)
		for _, want := range row.want {
			expect.That(t, code == row.code && strings.Contains(out+stderr, want), "%v: exit %d, lacks %q:\n%s%s", row.args, code, want, out, stderr)
		}
	}
}

// This command line accepts the commands of the containers in compose.yaml and of the sweepers.
func TestCompose_UsesValidCommands(t *testing.T) {
	roles := map[string]bool{}
	for _, file := range []string{"compose.yaml", "sweeper.yaml", "sweeper-postgres.yaml"} {
		requireCommands(t, "../../deploy/compose/"+file, roles)
	}
	for _, want := range []string{"relay", "closer", "compensator", "outbox", "sweeper"} {
		expect.That(t, roles[want], "no container runs the %s", want)
	}
}

// requireCommands adds the roles that the containers of a file run to roles.
func requireCommands(t *testing.T, file string, roles map[string]bool) {
	t.Helper()
	data := must.Get(os.ReadFile(file))(t)
	var f struct {
		Services map[string]struct {
			Image               string
			Entrypoint, Command []string
			Healthcheck         struct{ Test []string }
		}
	}
	must.Do(t, yaml.Unmarshal(data, &f))
	for name, s := range f.Services {
		if s.Image != "orderclose:local" || s.Entrypoint != nil {
			continue // it is another program
		}
		commands := [][]string{s.Command}
		if test := s.Healthcheck.Test; len(test) > 0 {
			expect.That(t, test[0] == "CMD" && test[1] == "orderclose", "%s: the health check is %v", name, test)
			commands = append(commands, test[2:])
		}
		for _, args := range commands {
			of, err := accepted(args)
			expect.That(t, err == nil, "%s: orderclose %v: %v", name, args, err)
			for _, r := range of {
				roles[string(r)] = true
			}
		}
	}
}
