package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orderclose/orderclose/internal/config"
)

// acting are the commands of the core that change something.
var acting = []string{"compensate", "close", "replay", "pause", "resume", "postpone", "dlq redrive", "dlq discard",
	"payments resolve", "events again", "topics apply", "migrate", "send"}

// keepActions wraps the commands that change something. After such a command has ended, the wrapper writes to the audit log what the
// command has done. The flag --quiet does not change that.
func (c *common) keepActions(root *cobra.Command) {
	for _, name := range acting {
		cmd, _, _ := root.Find(strings.Fields(name))
		c.acts = append(c.acts, cmd)
	}
	for _, cmd := range c.acts {
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			if code := codeOf(err); (code == int(Done) || code == int(Partly)) && acts(cmd) {
				if kept := c.keepAction(cmd, args, err); kept != nil {
					fmt.Fprintln(c.env.Stderr, "the audit log does not have this:", kept)
				}
			}
			return err
		}
	}
}

// acts reports whether the flags of a command make it change something.
func acts(cmd *cobra.Command) bool {
	yes, dry, show := cmd.Flags().Lookup("yes"), cmd.Flags().Lookup("dry-run"), cmd.Flags().Lookup("print")
	return (yes == nil || yes.Changed) && (dry == nil || !dry.Changed) && (show == nil || !show.Changed)
}

func (c *common) keepAction(cmd *cobra.Command, args []string, err error) error {
	s, openErr := c.openAnySet(config.EnvDSN, config.EnvBrokers)
	if openErr != nil {
		return openErr
	}
	defer s.Close()
	action := cmd.CommandPath()
	cmd.Flags().Visit(func(f *pflag.Flag) { action += fmt.Sprintf(" --%s=%s", f.Name, f.Value) })
	result := "done"
	if err != nil {
		result = err.Error()
	}
	return s.pipeline().KeepAction(context.WithoutCancel(cmd.Context()), operator(), strings.Join(append([]string{action}, args...), " "), result)
}
