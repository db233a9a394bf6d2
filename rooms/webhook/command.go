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
			do := PlanSendAgain
			if *yes {
				do = SendAgain
			}
			p, err := do(ctx, h, from, *onlyDead)
			return room.Result{JSON: p, Table: p.table}, err
		}, err
	}
}

// Again is what PlanSendAgain and SendAgain return, and the output of webhook again.
type Again struct {
	From   time.Time    `json:"from"`
	Events int64        `json:"events"`
	Dead   int64        `json:"dead_letters"` // of Events
	First  []DeadLetter `json:"first"`        // of the dead letters, at most 20
	Done   bool         `json:"done"`         // the events wait for the role webhook, which sends them
}

// PlanSendAgain says which events SendAgain would send, and changes nothing: those that the receiver has accepted from a time on, and those
// that were given up since, or only the latter. A program gets the Host from package admin. The error is admin.ErrNoDatabase,
// or one of the database.
func PlanSendAgain(ctx context.Context, h room.Host, from time.Time, onlyDead bool) (Again, error) {
	p := Again{From: from.UTC()}
	if h.Store == nil {
		return p, ops.ErrNoDatabase
	}
	t := table{h.Store}
	err := t.DB().QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(dead), 0) FROM webhook_events WHERE"+ended,
		from.UnixMilli(), flagOf(onlyDead)).Scan(&p.Events, &p.Dead)
	if err == nil {
		p.First, err = t.letters(ctx, from.UnixMilli(), lettersShown)
	}
	return p, err
}

// SendAgain makes the events that PlanSendAgain names wait for the role webhook, which sends them with their webhook-id of before, those of
// an order in their order. After an error Again.Events says how many it were; called again, it continues.
func SendAgain(ctx context.Context, h room.Host, from time.Time, onlyDead bool) (Again, error) {
	p, err := PlanSendAgain(ctx, h, from, onlyDead)
	if err != nil {
		return p, err
	}
	p.Done = true
	if p.Events, err = (table{h.Store}).again(ctx, from.UnixMilli(), flagOf(onlyDead)); err != nil {
		err = fmt.Errorf("after %s: %w; the same call continues", ops.Plural(p.Events, "event"), err)
	}
	return p, err
}

// flagOf returns the least value of the column dead that is selected.
func flagOf(onlyDead bool) int {
	if onlyDead {
		return 1
	}
	return 0
}

func (p Again) table(w io.Writer) {
	for _, l := range p.First {
		fmt.Fprintf(w, "dead letter\torder %s\t%s\n", ops.OneLine(l.Order, orderclose.MaxIDBytes), ops.OneLine(l.Error, 300))
	}
	what := "would be sent again; nothing was changed: repeat the command with --yes"
	if p.Done {
		what = "are sent again by orderclose run webhook"
	}
	fmt.Fprintf(w, "%s from %s on, %s among them, %s\n", ops.Plural(p.Events, "event"), ops.Stamp(p.From), ops.Plural(p.Dead, "dead letter"), what)
}
