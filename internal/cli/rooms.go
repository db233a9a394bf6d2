package cli

import (
	"flag"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/room"
)

// newRoomCommand returns a command of a room.
func newRoomCommand(c *common, of room.Command) *cobra.Command {
	cmd := &cobra.Command{Use: of.Use, Short: of.Short, Long: of.Long, Example: of.Example}
	for _, below := range of.Commands {
		cmd.AddCommand(newRoomCommand(c, below))
	}
	if of.New == nil {
		return cmd
	}
	flags := flag.NewFlagSet(cmd.Name(), flag.ContinueOnError)
	check := of.New(flags)
	cmd.Flags().AddGoFlagSet(flags)
	if of.Acts {
		c.acts = append(c.acts, cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		run, err := check()
		if err != nil {
			return Exit(Usage, err)
		}
		return with(c.open(of.Variables...))(func(s *session) error {
			bar := c.bar(of.Progress)
			result, err := run(cmd.Context(), room.Host{Config: s.cfg, Kafka: s.Kafka, Store: s.Store}, bar.Show)
			bar.End()
			return c.answer(result.JSON, err, result.Table, exitIf(result.Findings != "", Findings, "%s", result.Findings))
		})
	}
	return cmd
}
