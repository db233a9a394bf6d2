package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/ops/deadletters"
)

func newDLQList(c *common) *cobra.Command {
	var s selection
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [--cause CAUSE] [--stage STAGE] [--order ID] [--since TIME] [--all] [--limit N]",
		Short:   "List the pending dead letters, oldest first",
		Example: "  orderclose dlq ls --cause not_found --since 2h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := s.filter(nil)
			if err == nil && limit < 0 {
				err = Exit(Usage, fmt.Errorf("--limit is %d, want 0, for all, or more", limit))
			}
			if err != nil {
				return err
			}
			return c.dlqList(cmd.Context(), f, all, limit)
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "include those that were redriven or discarded")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many to list; 0: all")
	return cmd
}

// listed is the output of dlq ls.
type listed struct {
	Topic   string               `json:"topic"`
	Pending map[string]int       `json:"pending"` // of the filter, by cause
	Letters []deadletters.Letter `json:"letters"`
	More    bool                 `json:"more"` // the limit has cut the list
}

func (c *common) dlqList(ctx context.Context, f deadletters.Filter, all bool, limit int) error {
	s, topic, err := c.deadLetters(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	most := limit
	if limit > 0 {
		most++ // to detect whether there are more
	}
	letters, index, err := topic.List(ctx, f, all, most)
	if err != nil {
		return err
	}
	l := listed{Topic: topic.Name, Pending: index.Pending(), Letters: append([]deadletters.Letter{}, letters...)}
	if limit > 0 && len(letters) > limit {
		l.Letters, l.More = l.Letters[:limit], true
	}
	return c.print(l, func(w io.Writer) { printLetters(w, l) })
}

func printLetters(w io.Writer, l listed) {
	if len(l.Letters) > 0 {
		fmt.Fprintln(w, "at\tappended\tcause\tstage\torder\tfrom\tdetail")
	}
	for _, d := range l.Letters {
		cause := d.Cause
		if d.Resolution != "" {
			cause += ", " + string(d.Resolution)
		}
		fmt.Fprintf(w, "%v\t%s\t%s\t%s\t%s\t%s\t%s\n", d.At, stamp(d.AppendedAt), cause, d.Stage, oneLine(d.Key, 40), from(d.Source), oneLine(d.Detail, 80))
	}
	fmt.Fprintln(w, pendingLine(l.Pending))
	if l.More {
		fmt.Fprintf(w, "only the first %d are shown; --limit 0 shows all\n", len(l.Letters))
	}
}
