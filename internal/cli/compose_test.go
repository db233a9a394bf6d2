package cli

import (
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// This command line accepts the commands of the containers in compose.yaml.
func TestCompose_UsesValidCommands(t *testing.T) {
	data, err := os.ReadFile("../../deploy/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Services map[string]struct {
			Image       string
			Command     []string
			Healthcheck struct{ Test []string }
		}
	}
	if err := yaml.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	roles := map[string]bool{}
	for name, s := range f.Services {
		if s.Image != "orderclose:local" {
			continue
		}
		commands := [][]string{s.Command}
		if test := s.Healthcheck.Test; len(test) > 0 {
			if test[0] != "CMD" || test[1] != "orderclose" {
				t.Errorf("%s: the health check is %v", name, test)
			}
			commands = append(commands, test[2:])
		}
		for _, args := range commands {
			cmd, rest, err := newRoot(Env{}).Find(args)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil || !cmd.Runnable() || cmd.HasSubCommands() {
				t.Errorf("%s: orderclose %v: %v", name, args, err)
			}
			if cmd.Name() == "run" {
				of, err := rolesOf(cmd.Flags().Args(), false)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				for _, r := range of {
					roles[string(r)] = true
				}
			}
		}
	}
	for _, want := range []string{"relay", "closer", "compensator", "outbox", "release"} {
		if !roles[want] {
			t.Errorf("no container runs the %s", want)
		}
	}
}
