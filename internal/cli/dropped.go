package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

// dropped are the commands that are gone, each with what to use instead.
var dropped = map[string]string{
	"lateness": "the metrics orderclose_relay_lateness_seconds and orderclose_close_end_to_end_lateness_seconds say how late each stage is, " +
		"and the dashboards in deploy/grafana draw them; orderclose audit finds orders that were closed early",
	"notify": "run orderclose-notify with the flag --notify-config, a program of its own that archives and images of a release have",
}

// droppedCommands returns a hidden command for each of dropped, which says what to use instead.
func droppedCommands() (all []*cobra.Command) {
	for _, name := range slices.Sorted(maps.Keys(dropped)) {
		all = append(all, &cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs, RunE: func(*cobra.Command, []string) error {
			return Exit(Usage, fmt.Errorf("there is no command %s any more: %s", name, dropped[name]))
		}})
	}
	return all
}
