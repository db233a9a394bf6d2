package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/runbook"
)

func newRunbook(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "runbook [SECTION]",
		Short: "Show what to do about a problem or an alert",
		Long: `Show a section of the runbook: what a problem means, whether money is at risk, where
to look, what to do, and how to see that it is over. Without an argument it lists the
sections, with the alerts that lead to them. It needs no server and no topics.yaml.

SECTION is the title of a section, its anchor (what follows # in a link to it), the name
of an alert, or a part of one of these. Exits 4 if no section or several sections fit.`,
		Example: "  orderclose runbook redis-is-down\n  orderclose runbook OrdercloseCloseLate",
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				all := runbook.Sections()
				return c.print(all, func(w io.Writer) { printSections(w, all) })
			}
			name := strings.Join(args, " ")
			found, exactly := runbook.Find(name)
			switch {
			case len(found) == 0:
				return Exit(NotFound, fmt.Errorf("the runbook has no section %q: orderclose runbook lists all", name))
			case len(found) > 1 || !exactly:
				var list strings.Builder
				printSections(&list, found)
				return Exit(NotFound, fmt.Errorf("no section of the runbook is called %q; near are:\n%s", name, strings.ReplaceAll(list.String(), "\t", "  ")))
			}
			return c.print(found[0], func(w io.Writer) { fmt.Fprintln(w, found[0].Plain()) })
		},
	}
}

// printSections prints a line for each section.
func printSections(w io.Writer, all []runbook.Section) {
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\n", s.Anchor, strings.Join(s.Alerts, ", "))
	}
}
