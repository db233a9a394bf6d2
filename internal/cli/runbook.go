package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/runbook"
)

// printFirst prints the first commands of a section of the runbook, each on a line below an arrow.
func printFirst(w io.Writer, section string) {
	s, _ := runbook.At(section)
	for _, command := range s.First() {
		fmt.Fprintf(w, "\t   %s\n", command)
	}
}

func newRunbook(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "runbook [SECTION]",
		Short: "Show what to do about a problem or an alert",
		Long: `Show a section of the runbook: what a problem means, whether money is at risk, where
to look, what to do, and how to see that it is over. Without an argument it lists the
sections, with the alerts that lead to them. It needs no server and no topics.yaml.

SECTION is the title of a section, its anchor (what follows # in a link to it), the name
of an alert, or a part of one of these. Exits 4 if none or several fit.`,
		Example: "  orderclose runbook redis-or-the-lock-is-down\n  orderclose runbook OrdercloseCloseLate",
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			found := runbook.Sections()
			if len(args) > 0 {
				found = runbook.Find(strings.Join(args, " "))
			}
			if len(found) == 1 {
				return c.print(found[0], func(w io.Writer) { fmt.Fprintln(w, found[0].Plain()) })
			}
			err := c.print(found, func(w io.Writer) {
				for _, s := range found {
					fmt.Fprintf(w, "%s\t%s\n", s.Anchor, strings.Join(s.Alerts, ", "))
				}
			})
			return cmp.Or(err, exitIf(len(args) > 0, NotFound, "%q fits %d sections: name one; orderclose runbook lists all", args, len(found)))
		},
	}
}
