package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"orderclose"
	"orderclose/internal/app"
	"orderclose/internal/config"
	"orderclose/internal/store"
	"orderclose/internal/story"
)

func newOrder(c *common) *cobra.Command {
	var budget int64
	var within string
	cmd := &cobra.Command{
		Use:   "order ID",
		Short: "Tell the whole story of one order",
		Long: `Tell the whole story of one order: its rows in the database, its receipt, what
became of its stock, where its record is now and where it was, failed tries, dead
letters and events, as a timeline. Nothing is changed, and no part needs to be
running.

Its records are looked for in the partition of its key, from when it was made. Of
each topic at most --budget records are looked at, half of them from there and half
from the first that waits; it says what was left out.

It works without the database, or without Kafka, and says what it did not look at.
Exits 4 if nobody knows the order, 6 if something could not be looked at.`,
		Example: "  orderclose order order-17\n  orderclose order order-17 --budget 1000000 --within 2m -o json",
		Args:    oneArg("the order's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			patience, err := config.ParseDuration(within)
			if err != nil {
				err = fmt.Errorf("--within: %w: write a number and a unit, such as 30s", err)
			} else if budget < 2 {
				err = fmt.Errorf("--budget is %d, want 2 or more", budget)
			}
			if err := errors.Join(orderclose.ValidateID(args[0]), err); err != nil {
				return Exit(Usage, err)
			}
			return c.order(cmd.Context(), args[0], budget, patience)
		},
	}
	cmd.Flags().Int64Var(&budget, "budget", 100_000, "how many records of each topic to look at")
	cmd.Flags().StringVar(&within, "within", "20s", "how long to look")
	return cmd
}

func (c *common) order(ctx context.Context, id string, budget int64, within time.Duration) error {
	s, err := c.openSome(config.EnvBrokers, config.EnvDSN)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	told := s.story(ctx, id, budget)
	if err := c.print(told, func(w io.Writer) { printStory(w, told, s.unset()) }); err != nil {
		return err
	}
	return judgeStory(told, s.Kafka != nil && s.Store != nil)
}

// story asks whoever is there.
func (s *session) story(ctx context.Context, id string, budget int64) story.Story {
	var unseen []string
	var database *store.Story
	b := story.Budget{Records: budget}
	if s.Store != nil {
		row, err := s.Store.Story(ctx, id)
		if err != nil {
			unseen = append(unseen, "the database: "+err.Error())
		} else if database = &row; row.Order != nil {
			b.Since = row.Order.CreatedAt
		}
	}
	var places []story.Place
	if s.Kafka != nil {
		if err := s.Kafka.Ping(ctx); err != nil {
			unseen = append(unseen, err.Error())
		} else {
			all, err := app.OrderPlaces(ctx, s.Kafka, s.cfg)
			if err != nil {
				unseen = append(unseen, err.Error())
			}
			places = story.Look(ctx, s.Kafka, all, id, b)
		}
	}
	told := story.Tell(id, time.Now(), database, places)
	told.Unseen = append(unseen, told.Unseen...)
	return told
}

// unset are the variables of the servers that cannot be asked because nobody said
// where they are.
func (s *session) unset() (names []string) {
	if s.Store == nil {
		names = append(names, config.EnvDSN)
	}
	if s.Kafka == nil {
		names = append(names, config.EnvBrokers)
	}
	return names
}

func judgeStory(s story.Story, all bool) error {
	switch {
	case len(s.Unseen) > 0:
		return Exit(Partly, errors.New("not everything could be looked at; it says what"))
	case !s.Known() && s.Skipped() > 0:
		return Exit(NotFound, fmt.Errorf("order %q was not found; not looked at: %s; look further with --budget", s.ID, several(s.Skipped(), "record")))
	case !s.Known() && !all:
		return Exit(NotFound, fmt.Errorf("order %q was not found where it was looked for: set %s and %s to look everywhere", s.ID, config.EnvBrokers, config.EnvDSN))
	case !s.Known():
		return Exit(NotFound, fmt.Errorf("nobody knows order %q", s.ID))
	}
	return nil
}

// printStory prints what is known; unset are the variables that are not set of those
// that more would be known by.
func printStory(w io.Writer, s story.Story, unset []string) {
	fmt.Fprintf(w, "order %s: %s\n", oneLine(s.ID, orderclose.MaxIDBytes), oneLine(s.Now, 400))
	if s.Database != nil && s.Database.Order != nil {
		o := s.Database.Order
		fmt.Fprint(w, o.State)
		if o.Version > 0 { // 0: the table has no such column
			fmt.Fprintf(w, ", version %d", o.Version)
		}
		fmt.Fprintf(w, ", %s\n", several(len(s.Database.Items), "line"))
		for _, i := range s.Database.Items {
			fmt.Fprintf(w, "  %d\tof %s\n", i.Quantity, oneLine(i.SKU, orderclose.MaxIDBytes))
		}
	}
	if len(s.Timeline) > 0 {
		fmt.Fprintln(w)
	}
	for _, e := range s.Timeline {
		fmt.Fprintf(w, "%s\t%s\t%s\n", stamp(e.At), e.Where, oneLine(e.What, 400))
	}
	var looked int64
	for _, p := range s.Places {
		looked += p.Looked
		if p.Skipped > 0 {
			fmt.Fprintf(w, "not looked at\t%s/%d\t%s\n", p.Topic, p.Partition, several(p.Skipped, "record"))
		}
	}
	for _, what := range s.Unseen {
		fmt.Fprintf(w, "not looked at\t%s\n", oneLine(what, 400))
	}
	for _, name := range unset {
		fmt.Fprintf(w, "%s was not asked: %s is not set\n", map[string]string{config.EnvDSN: "the database", config.EnvBrokers: "Kafka"}[name], name)
	}
	if len(s.Places) > 0 {
		fmt.Fprintf(w, "looked at %s of %s\n", several(looked, "record"), several(len(s.Places), "topic"))
	}
}
