package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orderclose/orderclose/internal/environ"
)

// acting are the commands that change something.
var acting = []string{"compensate", "replay", "pause", "resume",
	"payments resolve", "events again", "topics apply", "migrate", "send"}

// keepActions wraps the commands that change something. After such a command has ended, the wrapper writes to the audit log what the
// command has done, also if it failed: it may have done a part. The flag --quiet does not change that.
func (c *common) keepActions(root *cobra.Command) {
	for _, name := range acting {
		cmd, _, _ := root.Find(strings.Fields(name))
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
			cmd.Flags().Visit(func(f *pflag.Flag) { // such as a variable of a script that is not set: without the flag the command does more
				err = cmp.Or(err, exitIf(slices.Contains([]string{"", "[]"}, f.Value.String()), Usage, "--%s is empty: give it a value, or leave it out", f.Name))
			})
			if err == nil {
				err = run(cmd, args)
			}
			if code := Code(codeOf(err)); code != Usage && code != NotFound && code != Refused && acts(cmd) {
				// A command that failed has an error that says enough; and migrate has perhaps not created the log.
				if kept := c.keepAction(cmd, args, err); kept != nil && code != Failed && (code != Findings || cmd.Name() != "migrate") {
					c.note("this action could not be written to the audit log:", kept)
				}
			}
			return err
		}
	}
}

// acts reports whether the values of a command's flags make it change something.
func acts(cmd *cobra.Command) bool {
	on := func(name string) bool {
		f := cmd.Flags().Lookup(name)
		return f != nil && f.Value.String() != "" && f.Value.String() != "false"
	}
	return (cmd.Flags().Lookup("yes") == nil || on("yes")) && !on("dry-run") && !on("print")
}

func (c *common) keepAction(cmd *cobra.Command, args []string, err error) error {
	if v, readErr := environ.Read(c.env.LookupEnv, environ.EnvDSN); readErr != nil || v.DSN == "" {
		return nil // such as the file of a Secret that a Job does not mount
	}
	s, openErr := c.open(environ.EnvDSN)
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
