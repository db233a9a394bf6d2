package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// Event is the event of a closed order, with its id.
type Event struct {
	ID string // the same in every duplicate
	orderclose.OrderClosed
	// Reminder is set if EventOptions.Type is orderclose.EventOrderReminder. OrderClosed then has only
	// the fields that both kinds of events have.
	Reminder orderclose.OrderReminder
	// Paid is set if EventOptions.Type is orderclose.EventOrderPaid, likewise.
	Paid orderclose.OrderPaid
	// PaidLate is set if EventOptions.Type is orderclose.EventOrderPaidLate, likewise.
	PaidLate orderclose.OrderPaidLate
}

// DefaultEventBatch is the default of EventOptions.Batch.
const DefaultEventBatch = 100

// EventOptions configure App.ReadEvents. Group and Handle are required.
type EventOptions struct {
	Group string // the program's own consumer group; its members share the events
	Topic string // default Config.Topics.Events
	Type  string // type of the events, such as orderclose.EventOrderReminder; default orders.event of topics.yaml, or orderclose.EventOrderClosed
	Batch int    // maximum of events in a call of Handle; default DefaultEventBatch
	// Handle handles events of one partition, in their order. It is called from several
	// goroutines. Each event comes at least once: write what follows from it in one transaction
	// with its id. The offset is committed after all events of a fetch, which may take several
	// calls. After an error, all events since the last commit come again. A panic is an error.
	Handle func(ctx context.Context, events []Event) error
	// Skipped is called for each record that is not an event of this type. The error wraps
	// orderclose.ErrOtherEvent if the record is an event of another type. Otherwise the error
	// says why the record cannot be read. Skipped is also called once for each range of records
	// that were lost or are corrupt. It may be called again for the same record or range, as
	// Handle may. May be nil.
	Skipped func(err error)
	Logger  *slog.Logger // default: that of the App
}

// ReadEvents reads the events of closed orders, of the topic and the type in topics.yaml, as a member of a consumer group, until ctx ends, and
// then returns nil. A new group begins with the oldest event of the topic. The offset is committed
// after Handle, so that a restart continues there. ReadEvents retries all failures of Kafka and of
// Handle, after 50 ms at first and half a second later, without end; each is a warning in the log. It
// returns an error only if an option is missing or wrong, there are no brokers, the name
// of the group or topic is invalid, or another process has the same instance (ErrFenced). It may run before, beside or without Run.
func (a *App) ReadEvents(ctx context.Context, o EventOptions) error {
	if a.conns.Kafka == nil {
		return errNoBrokers
	}
	return readEvents(ctx, a.conns.Kafka, a.eventOptions(o))
}

func readEvents(ctx context.Context, k *kafka.Cluster, o EventOptions) error {
	if o.Group == "" || o.Topic == "" || o.Handle == nil || o.Batch < 0 {
		return errors.New("pipeline: EventOptions need Group, Topic and Handle, and a Batch that is not negative")
	}
	o.Type = cmp.Or(o.Type, orderclose.EventOrderClosed)
	o.Batch = cmp.Or(o.Batch, DefaultEventBatch)
	if o.Skipped == nil {
		o.Skipped = func(error) {}
	}
	o.Logger = retry.LimitLogs(o.Logger)
	return k.Consume(ctx, o.Group, o.Topic, func(ctx context.Context, claim wire.Claim) {
		at := wire.Position{Topic: claim.Topic, Partition: claim.Partition, Offset: claim.Offset}
		logger, panicked := o.Logger.With("topic", claim.Topic, "partition", claim.Partition), ""
		for pauses := retry.NewBackOff(); ctx.Err() == nil; {
			next := at
			err := retry.Catch(func() (err error) { next, err = o.readNext(ctx, k, at); return err })
			if err == nil {
				if next.Offset != at.Offset || claim.NoCommit { // an idle reader commits nothing
					claim.Done(next.Offset, "")
				}
				at, claim.NoCommit = next, false
				pauses.Reset()
				continue
			}
			if p, ok := errors.AsType[*retry.PanicError](err); ok && panicked != p.Error() {
				panicked = p.Error()
				logger.Error("a handler of events panicked, will retry", "offset", at.Offset, "err", err, "stack", p.Stack)
			} else if ctx.Err() == nil {
				logger.Warn("reading events failed, will retry", "offset", at.Offset, "err", err)
			}
			retry.Sleep(ctx, pauses.NextBackOff())
		}
	})
}

// eventOptions sets the options that are not set.
func (a *App) eventOptions(o EventOptions) EventOptions {
	o.Topic = cmp.Or(o.Topic, a.o.Config.Topics.Events)
	o.Type = cmp.Or(o.Type, a.eventType())
	o.Logger = cmp.Or(o.Logger, a.o.Logger)
	return o
}

// readNext handles the records at the position and returns the next position. The position
// identifies the log, so that a topic that was deleted and recreated is noticed.
func (o EventOptions) readNext(ctx context.Context, k *kafka.Cluster, at wire.Position) (wire.Position, error) {
	f, err := k.Read(ctx, at)
	if err != nil {
		return at, err
	}
	for what, gone := range map[string]*wire.Range{"lost": f.Lost, "unreadable": f.Corrupt} {
		if gone != nil {
			o.Logger.Error("events are "+what, "topic", at.Topic, "partition", at.Partition, "first", gone.First, "last", gone.Last, "err", gone.Err)
			o.Skipped(fmt.Errorf("%s/%d: the events %d to %d are %s: %w", at.Topic, at.Partition, gone.First, gone.Last, what, gone.Err))
		}
	}
	events := make([]Event, 0, len(f.Records))
	for _, record := range f.Records {
		e, err := o.decode(record)
		switch {
		case err == nil:
			events = append(events, e)
		case errors.Is(err, orderclose.ErrOtherEvent):
			o.Skipped(err)
		default: // it must not block the others
			o.Logger.Error("an event cannot be read", "topic", at.Topic, "partition", at.Partition, "offset", record.Offset, "err", err)
			o.Skipped(err)
		}
	}
	if f.Free != nil {
		f.Free()
	}
	for part := range slices.Chunk(events, o.Batch) {
		if err := o.Handle(ctx, part); err != nil {
			return at, err
		}
	}
	at.Offset, at.Log = f.Next, f.Log
	return at, nil
}

func (o EventOptions) decode(record wire.RawRecord) (e Event, err error) {
	m, err := record.Message()
	if err != nil {
		return e, err
	}
	if e.ID, e.OrderClosed, err = orderclose.DecodeClosed(m.Value, o.Type); err != nil {
		return e, err
	}
	switch o.Type {
	case orderclose.EventOrderReminder:
		_, e.Reminder, err = orderclose.DecodeOrderReminder(m.Value)
	case orderclose.EventOrderPaid:
		_, e.Paid, err = orderclose.DecodeOrderPaid(m.Value)
	case orderclose.EventOrderPaidLate:
		_, e.PaidLate, err = orderclose.DecodeOrderPaidLate(m.Value)
	}
	return e, err
}
