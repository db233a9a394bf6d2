package ops

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// causeTime limits what one sweep spends on the causes.
	causeTime = 10 * time.Second
	// rowsAtOnce is how many rows of the schedule outbox one query reads.
	rowsAtOnce = 5000
	// maxRows bounds how many rows of the schedule outbox are kept in memory, at some 20
	// bytes each. An outbox that is drained has a few hundred rows.
	maxRows = 1_000_000
	// behindAfter is by how much a record is overdue in a delay topic if the relay is behind: relays
	// commit every 200 ms, and clocks differ.
	behindAfter = 2 * time.Second
)

// Schedules reads the schedule outbox. store.Store implements it.
type Schedules interface {
	// PendingSchedules returns up to limit rows whose id is greater than afterID, ordered by id.
	PendingSchedules(ctx context.Context, afterID int64, limit int) ([]wire.OutboxRow, error)
}

// Investigator says why the pipeline missed the orders that a sweep found, as far as that is cheap to know: the rows of the
// schedule outbox, the pending dead letters, and whether the relay or the closer is behind in the order's partition. It
// reads them once for a sweep, after the first page of missed orders was closed. The rest is in the history of an order. It implements
// compensator.Investigator. A source that is nil is skipped.
type Investigator struct {
	Schedules Schedules
	Letters   func(ctx context.Context) (*deadletters.Index, error)
	Status    func(ctx context.Context) Status // of the delay topics and the close topic
	Logger    *slog.Logger
}

// Begin implements compensator.Investigator.
func (i *Investigator) Begin(context.Context) (compensator.Investigation, error) {
	return &investigation{Investigator: i, seed: maphash.MakeSeed()}, nil
}

// investigation implements compensator.Investigation. One goroutine uses it.
type investigation struct {
	*Investigator
	seed    maphash.Seed
	rows    map[uint64]int64 // id of the row in the schedule outbox, by hash of the order's id; nil: not read yet
	letter  func(id string) (at deadletters.Position, ok bool)
	status  Status
	notRead string // why some source was not read completely; "": all were
}

// Explain implements compensator.Investigation.
func (n *investigation) Explain(ctx context.Context, missed []orderclose.Order) []compensator.Miss {
	if n.rows == nil {
		n.read(ctx)
	}
	misses := make([]compensator.Miss, len(missed))
	for i, o := range missed {
		why, where := n.causeOf(o.ID)
		misses[i] = compensator.Miss{Order: o, Cause: why, Where: where, Fix: fixOne(why, o.ID)}
	}
	return misses
}

func (n *investigation) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, causeTime)
	defer cancel()
	n.rows = map[uint64]int64{}
	n.letter = func(string) (at deadletters.Position, ok bool) { return at, false }
	n.notRead = n.readRows(ctx)
	if n.Letters == nil {
		n.notRead = cmp.Or(n.notRead, "no Kafka is configured")
	} else if index, err := n.Letters(ctx); err != nil {
		n.notRead = cmp.Or(n.notRead, "the dead letters: "+err.Error())
	} else {
		n.letter = index.PendingByKey()
	}
	if n.Status != nil {
		n.status = n.Status(ctx)
	}
	if n.notRead != "" {
		n.Logger.Warn("causes of missed orders not read completely, some are unknown", "reason", n.notRead)
	}
}

func (n *investigation) readRows(ctx context.Context) (notRead string) {
	if n.Schedules == nil {
		return ""
	}
	for after := int64(0); len(n.rows) < maxRows; {
		rows, err := n.Schedules.PendingSchedules(ctx, after, rowsAtOnce)
		if err != nil {
			return "the schedule outbox: " + err.Error()
		}
		for _, r := range rows {
			n.rows[maphash.String(n.seed, r.OrderID)], after = r.ID, r.ID
		}
		if len(rows) < rowsAtOnce {
			return ""
		}
	}
	return fmt.Sprintf("the schedule outbox has more than %d rows", maxRows)
}

// causeOf returns why an order was missed, and where to see it, or why nothing is known.
func (n *investigation) causeOf(id string) (why compensator.Cause, where string) {
	if row := n.rows[maphash.String(n.seed, id)]; row > 0 {
		return compensator.Unpublished, fmt.Sprintf("outbox_schedules row %d", row)
	}
	if at, ok := n.letter(id); ok {
		return compensator.DeadLettered, "dead letter " + at.String()
	}
	notRead := n.notRead
	for _, t := range n.status.Topics {
		if t.Problem != "" {
			notRead = cmp.Or(notRead, t.Topic+": "+t.Problem)
			continue
		}
		p := t.Partitions[kafka.PartitionOf([]byte(id), len(t.Partitions))]
		if t.close && p.Waiting > 0 || p.Overdue > behindAfter.Seconds() { //mutant:always-on-its-way
			return compensator.OnItsWay, fmt.Sprintf("%s/%d", t.Topic, p.Partition)
		}
		if p.Problem != "" {
			notRead = cmp.Or(notRead, fmt.Sprintf("%s/%d: %s", t.Topic, p.Partition, p.Problem))
		}
	}
	return compensator.Unknown, notRead
}

// fixes are the commands that fix a cause for all its orders, or that show more. ID stands for the id of an order.
var fixes = map[compensator.Cause]string{
	compensator.Unpublished:  "orderclose run outbox",
	compensator.DeadLettered: "orderclose dlq ls",
	compensator.OnItsWay:     "orderclose status",
	compensator.Unknown:      "orderclose order ID",
}

// FixCommand returns the command that fixes a cause for all its orders, or that shows more.
func FixCommand(c compensator.Cause) string { return cmp.Or(fixes[c], fixes[compensator.Unknown]) }

// fixOne returns the command for one order.
func fixOne(c compensator.Cause, id string) string {
	if c == compensator.DeadLettered {
		return "orderclose dlq redrive --order " + ShellQuote(id)
	}
	return strings.ReplaceAll(FixCommand(c), "ID", ShellQuote(id))
}
