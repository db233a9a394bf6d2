package webhook

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/room"
)

// lettersShown is how many dead letters a plan names.
const lettersShown = 20

// commands returns orderclose webhook again.
func commands() []room.Command {
	return []room.Command{{Use: "webhook", Short: "Send events to the webhook again", Commands: []room.Command{{
		Use:   "again --from TIME [--dead] [--yes]",
		Short: "Send again what was sent or given up from a time on",
		Long: `Send again the events that the receiver has accepted from a time on, and those that were
given up since; with --dead only the latter. Each has its webhook-id of before. Those of an
order are sent in their order. Without --yes the command prints what it would send.

Events that were sent are kept for seven days, dead letters until they are accepted. A time is
RFC 3339, or how long ago, such as 90m.`,
		Example:   "  orderclose webhook again --from 2h\n  orderclose webhook again --from 30d --dead --yes",
		Variables: []string{config.EnvDSN}, Acts: true, New: newAgain,
	}}}}
}

func newAgain(flags *flag.FlagSet) func() (room.Run, error) {
	text := flags.String("from", "", "since when the events were sent or given up")
	onlyDead := flags.Bool("dead", false, "only events that were given up")
	yes := flags.Bool("yes", false, "send them")
	return func() (room.Run, error) {
		from, err := ops.ParseTime("--from", *text, time.Now())
		return func(ctx context.Context, h room.Host, _ func(done, total int64, step string)) (room.Result, error) {
			return again(ctx, table{h.Store}, plan{From: from.UTC(), Done: *yes}, *onlyDead)
		}, err
	}
}

// plan is the output of webhook again.
type plan struct {
	From   time.Time `json:"from"`
	Events int64     `json:"events"`
	Dead   int64     `json:"dead_letters"` // of Events
	First  []letter  `json:"first"`        // of the dead letters
	Done   bool      `json:"done"`
}

// again says which events would be sent again, and makes them wait for a sender if Done is set.
func again(ctx context.Context, t table, p plan, onlyDead bool) (room.Result, error) {
	from, dead := p.From.UnixMilli(), map[bool]int{true: 1}[onlyDead]
	err := t.DB().QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(dead), 0) FROM webhook_events WHERE"+ended, from, dead).Scan(&p.Events, &p.Dead)
	if err == nil {
		p.First, err = t.letters(ctx, from, lettersShown)
	}
	if err == nil && p.Done {
		if p.Events, err = t.again(ctx, from, dead); err != nil {
			err = fmt.Errorf("after %s: %w; the same command continues", ops.Plural(p.Events, "event"), err)
		}
	}
	return room.Result{JSON: p, Table: p.table}, err
}

func (p plan) table(w io.Writer) {
	for _, l := range p.First {
		fmt.Fprintf(w, "dead letter\torder %s\t%s\n", ops.OneLine(l.Order, orderclose.MaxIDBytes), ops.OneLine(l.Error, 300))
	}
	what := "would be sent again; nothing was changed: repeat the command with --yes"
	if p.Done {
		what = "are sent again by orderclose run webhook"
	}
	fmt.Fprintf(w, "%s from %s on, %s among them, %s\n", ops.Plural(p.Events, "event"), ops.Stamp(p.From), ops.Plural(p.Dead, "dead letter"), what)
}
