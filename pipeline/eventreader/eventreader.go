// Package eventreader reads the events of a pipeline in a program of the user: one kind, as a member of a consumer group of the program.
package eventreader

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
	"github.com/orderclose/orderclose/pipeline"
)

// Data has the kinds of events that Read reads.
type Data interface {
	orderclose.OrderClosed | orderclose.OrderPaid | orderclose.OrderPaidLate | orderclose.OrderReminder
}

// Event is an event with its id.
type Event[E Data] struct {
	ID   string // the same in every duplicate
	Data E
}

// DefaultBatch is the default of Options.Batch.
const DefaultBatch = 100

// Options configure Read. Group and Handle are required.
type Options[E Data] struct {
	Group string // the program's own consumer group; its members share the events
	Topic string // default Config.Topics.Events
	Batch int    // maximum of events in a call of Handle; default DefaultBatch
	// Handle handles events of one partition, in their order. It is called from several
	// goroutines. Each event comes at least once: write what follows from it in one transaction
	// with its id. The offset is committed after each call. After an error, Read calls Handle
	// again with the same events, and the later events of the partition wait. So let Handle itself
	// repeat a request to a service of yours, until ctx ends. A panic is an error.
	Handle func(ctx context.Context, events []Event[E]) error
	// Skipped is called for each record that is not an event of this kind. The error wraps
	// orderclose.ErrOtherEvent if the record is an event of another type, and orderclose.ErrBadEvent
	// if it cannot be read. Skipped is also called once for each range of records
	// that were lost or are corrupt. It may be called again for the same record or range, as
	// Handle may. May be nil.
	Skipped func(err error)
	Logger  *slog.Logger // default: that of the App
	closed  string       // the type of the events of closes: orders.event of topics.yaml, or orderclose.EventOrderClosed
}

// Read reads the events of one kind, such as orderclose.OrderPaidLate, as a member of a consumer group, until ctx ends, and
// then returns nil:
//
//	err := eventreader.Read(ctx, app, eventreader.Options[orderclose.OrderPaidLate]{
//		Group: "refunds",
//		Handle: func(ctx context.Context, events []eventreader.Event[orderclose.OrderPaidLate]) error { … },
//	})
//
// A new group begins with the oldest event of the topic. The offset is committed
// after Handle, so that a restart continues there. Read retries all failures of Kafka and of
// Handle, after 50 ms at first and half a second later, without end; each is a warning in the log. It
// returns an error only if an option is missing or wrong, there are no brokers, the name
// of the group or topic is invalid, another process has the same instance (pipeline.ErrFenced), or app was closed (pipeline.ErrClosed). It may
// run before, beside or without app.Run.
func Read[E Data](ctx context.Context, app *pipeline.App, o Options[E]) error {
	host := app.Host()
	if host.Connections.Kafka == nil {
		return errors.New("there is no Kafka cluster: set Servers.Brokers")
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(host.Life, stop)()
	if err := read(reading, host.Connections.Kafka, o.of(host)); err != nil || ctx.Err() != nil || host.Life.Err() == nil {
		return err
	}
	return pipeline.ErrClosed
}

func read[E Data](ctx context.Context, k *kafka.Cluster, o Options[E]) error {
	if o.Group == "" || o.Topic == "" || o.Handle == nil || o.Batch < 0 {
		return errors.New("eventreader: Options need Group, Topic and Handle, and a Batch that is not negative")
	}
	o.closed = cmp.Or(o.closed, orderclose.EventOrderClosed)
	o.Batch = cmp.Or(o.Batch, DefaultBatch)
	if o.Skipped == nil {
		o.Skipped = func(error) {}
	}
	o.Logger = retry.LimitLogs(o.Logger)
	return k.Consume(ctx, o.Group, o.Topic, func(ctx context.Context, claim wire.Claim) {
		at := wire.Position{Topic: claim.Topic, Partition: claim.Partition, Offset: claim.Offset}
		logger, panicked := o.Logger.With("topic", claim.Topic, "partition", claim.Partition), ""
		for pauses := retry.NewBackOff(); ctx.Err() == nil; {
			next := at
			err := retry.Catch(func() error { return o.readNext(ctx, k, &next) })
			if next.Offset != at.Offset || err == nil && claim.NoCommit { // an idle reader commits nothing
				claim.Done(next.Offset, "")
				claim.NoCommit = false
				pauses.Reset()
			}
			if at = next; err == nil {
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

// of sets the options that are not set.
func (o Options[E]) of(host pipeline.Host) Options[E] {
	c := host.Config()
	o.Topic, o.Logger = cmp.Or(o.Topic, c.Topics.Events), cmp.Or(o.Logger, host.Logger)
	if c.Orders != nil {
		o.closed = c.Orders.Event
	}
	return o
}

// readNext handles the records at the position and moves it behind what was handled, also if it fails then. The position identifies
// the log, so that a topic that was deleted and recreated is noticed.
func (o Options[E]) readNext(ctx context.Context, k *kafka.Cluster, at *wire.Position) error {
	f, err := k.Read(ctx, *at)
	if err != nil {
		return err
	}
	for what, gone := range map[string]*wire.Range{"lost": f.Lost, "unreadable": f.Corrupt} {
		if gone != nil {
			o.Logger.Error("events are "+what, "topic", at.Topic, "partition", at.Partition, "first", gone.First, "last", gone.Last, "err", gone.Err)
			o.Skipped(fmt.Errorf("%s/%d: the events %d to %d are %s: %w", at.Topic, at.Partition, gone.First, gone.Last, what, gone.Err))
		}
	}
	events, offsets := make([]Event[E], 0, len(f.Records)), make([]int64, 0, len(f.Records))
	for _, record := range f.Records {
		e, err := o.decode(record)
		switch {
		case err == nil:
			events, offsets = append(events, e), append(offsets, record.Offset)
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
	at.Log = f.Log
	for part := range slices.Chunk(events, o.Batch) {
		if err := o.Handle(ctx, part); err != nil {
			return err
		}
		if offsets = offsets[len(part):]; len(offsets) > 0 {
			at.Offset = offsets[0]
		}
	}
	at.Offset = f.Next
	return nil
}

func (o Options[E]) decode(record wire.RawRecord) (e Event[E], err error) {
	m, err := record.Message()
	if err != nil {
		return e, fmt.Errorf("%w: %w", orderclose.ErrBadEvent, err)
	}
	switch data := any(&e.Data).(type) {
	case *orderclose.OrderClosed:
		e.ID, *data, err = orderclose.DecodeClosed(m.Value, o.closed)
	case *orderclose.OrderPaid:
		e.ID, *data, err = orderclose.DecodeOrderPaid(m.Value)
	case *orderclose.OrderPaidLate:
		e.ID, *data, err = orderclose.DecodeOrderPaidLate(m.Value)
	case *orderclose.OrderReminder:
		e.ID, *data, err = orderclose.DecodeOrderReminder(m.Value)
	}
	return e, err
}
