// Package notices tells other services about closed and paid orders: each service has a reader of the events
// topic, a consumer group of its own, and all readers work in parallel. A service that is slow or down
// delays its own notices only.
//
//	n, err := notices.New(notices.Options{DB: db, Orders: orders, Dialect: dialect, Readers: []notices.Reader{
//		{Name: "sms", Call: sendSMS}, {Name: "points", Apply: returnPoints}, …
//	}})
//	err = n.Run(ctx, app, "shop-", topic)  // the groups are shop-sms, shop-points, …
//
// Kafka delivers an event at least once. A row for each reader and event id makes its effect happen
// once: Apply runs in the transaction that writes the row. Call runs before it, because a provider is
// in no transaction. If the process ends between the two, Call gets the event again with the same key,
// and the provider must treat a key that it has seen as done. Providers of SMS and logistics do.
package notices

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/pipeline/eventreader"
	"github.com/orderclose/orderclose/producer"
)

// parallelCalls is how many events of one partition are with a provider at once.
const parallelCalls = 16

// ErrRejected says that a provider will never accept a notice. Wrap it in the error of Reader.Call:
// the event is recorded as rejected, and does not block those behind it.
var ErrRejected = errors.New("the provider rejects the notice")

// Event is what a reader gets: the order was closed, or it was paid at the provider.
type Event struct {
	ID, OrderID string
	At          time.Time
}

// Reader tells one service. Call or Apply is required, or both.
type Reader struct {
	Name string // at most 32 bytes; it identifies the rows of the reader
	Paid bool   // its events are those of orders that were paid at the provider; default: those of closed orders
	// Call tells a provider. key is the same for each repeat of an event. After an error it is
	// called again, unless the error wraps ErrRejected. It may be called from several goroutines.
	Call func(ctx context.Context, key string, e Event) error
	// Apply writes to the shop's database, in the transaction that records the event.
	Apply func(ctx context.Context, tx *sql.Tx, e Event) error
}

// Results of an event, for Options.Counted.
const (
	Done     = "done"
	Repeated = "repeated" // it was recorded before
	Rejected = "rejected" // the provider will never accept it
	Other    = "other"    // an event of another type
	Bad      = "bad"      // a record that is no event, or was lost
)

// Options configure Notices. DB, Orders, Dialect and Readers are required.
type Options struct {
	DB      *sql.DB
	Orders  *shopdb.Orders
	Dialect producer.Dialect
	Readers []Reader
	Counted func(reader, result string) // called for each event; default: none
	Logger  *slog.Logger                // default: discard
}

// Notices runs readers. Create it with New.
type Notices struct {
	o      Options
	record string
}

// New returns Notices, or an error for missing options. CreateTables must have created the table.
func New(o Options) (*Notices, error) {
	if o.DB == nil || o.Orders == nil || o.Dialect == "" || len(o.Readers) == 0 {
		return nil, errors.New("notices: Options need DB, Orders, Dialect and Readers")
	}
	for _, r := range o.Readers {
		if r.Name == "" || len(r.Name) > 32 || r.Call == nil && r.Apply == nil {
			return nil, fmt.Errorf("notices: reader %q needs a name of at most 32 bytes, and Call or Apply", r.Name)
		}
	}
	if o.Counted == nil {
		o.Counted = func(string, string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Notices{o: o, record: "INSERT IGNORE INTO "}
	if o.Dialect == producer.SQLite {
		n.record = "INSERT OR IGNORE INTO "
	}
	n.record += "checkout_notices (reader, event, order_id, result, created_at) VALUES (?, ?, ?, ?, ?)"
	return n, nil
}

// Run reads the topic with one consumer group for each reader, named by prefix and the reader's name,
// until ctx ends. It returns when all have stopped. An error of one stops the others.
func (n *Notices) Run(ctx context.Context, app *pipeline.App, prefix, topic string) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, r := range n.o.Readers {
		all.Go(func() error {
			if r.Paid {
				return read(ctx, n, app, r, prefix, topic, func(id string, e orderclose.OrderPaid) Event { return Event{id, e.OrderID, e.PaidAt} })
			}
			return read(ctx, n, app, r, prefix, topic, func(id string, e orderclose.OrderClosed) Event { return Event{id, e.OrderID, e.ClosedAt} })
		})
	}
	return all.Wait()
}

// read reads the events of one kind for a reader.
func read[E eventreader.Data](ctx context.Context, n *Notices, app *pipeline.App, r Reader, prefix, topic string, of func(id string, e E) Event) error {
	return eventreader.Read(ctx, app, eventreader.Options[E]{
		Group: prefix + r.Name, Topic: topic, Logger: n.o.Logger.With("reader", r.Name),
		Handle: func(ctx context.Context, events []eventreader.Event[E]) error {
			all := make([]Event, len(events))
			for i, e := range events {
				all[i] = of(e.ID, e.Data)
			}
			return n.handle(ctx, r, all)
		},
		Skipped: func(err error) {
			if errors.Is(err, orderclose.ErrOtherEvent) {
				n.o.Counted(r.Name, Other)
				return
			}
			n.o.Counted(r.Name, Bad)
			n.o.Logger.Error("an event cannot be read, its order gets no notice", "reader", r.Name, "err", err)
		},
	})
}

// handle handles events of one partition.
func (n *Notices) handle(ctx context.Context, r Reader, events []Event) error {
	fresh, err := n.unrecorded(ctx, r, events)
	if err != nil {
		return err
	}
	for range len(events) - len(fresh) {
		n.o.Counted(r.Name, Repeated)
	}
	results, failed := n.call(ctx, r, fresh)
	var done []string
	if err := n.o.Orders.Checkout(ctx, func(t *shopdb.Tx) (err error) {
		done, err = n.apply(ctx, t.SQL(), r, fresh, results)
		return err
	}); err != nil {
		return errors.Join(failed, fmt.Errorf("reader %s: %w", r.Name, err))
	}
	for _, result := range done {
		n.o.Counted(r.Name, result)
	}
	return failed // those that were recorded are skipped when the events come again
}

// unrecorded returns the events that the reader has not handled, each once.
func (n *Notices) unrecorded(ctx context.Context, r Reader, events []Event) (fresh []Event, err error) {
	seen := map[string]bool{}
	for _, e := range events {
		key := Key(e.ID)
		if seen[key] {
			continue
		}
		seen[key] = true
		var known int
		err := n.o.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM checkout_notices WHERE reader = ? AND event = ?", r.Name, key).Scan(&known)
		if err != nil {
			return nil, fmt.Errorf("reader %s: %w: %w", r.Name, orderclose.ErrUnavailable, err)
		}
		if known == 0 {
			fresh = append(fresh, e)
		}
	}
	return fresh, nil
}

// call calls the provider for each event. It returns the result of each event; "" for a failure, which
// the error describes.
func (n *Notices) call(ctx context.Context, r Reader, events []Event) (results []string, failed error) {
	results = make([]string, len(events))
	if r.Call == nil {
		for i := range results {
			results[i] = Done
		}
		return results, nil
	}
	var mu sync.Mutex
	var calls errgroup.Group
	calls.SetLimit(parallelCalls)
	for i, e := range events {
		calls.Go(func() error {
			err := r.Call(ctx, Key(e.ID), e)
			switch {
			case err == nil:
				results[i] = Done
			case errors.Is(err, ErrRejected):
				results[i] = Rejected
				n.o.Logger.Error("a provider has rejected a notice, which is not sent again", "reader", r.Name, "order", e.OrderID, "event", e.ID, "err", err)
			default:
				mu.Lock()
				failed = errors.Join(failed, fmt.Errorf("reader %s, order %q: %w", r.Name, e.OrderID, err))
				mu.Unlock()
			}
			return nil
		})
	}
	_ = calls.Wait()
	return results, failed
}

// apply records the events that have a result, and applies each that is new and done. It returns the
// results that were counted for the first time.
func (n *Notices) apply(ctx context.Context, tx *sql.Tx, r Reader, events []Event, results []string) (done []string, err error) {
	for i, e := range events {
		if results[i] == "" {
			continue
		}
		res, err := tx.ExecContext(ctx, n.record, r.Name, Key(e.ID), e.OrderID, results[i], time.Now().UnixMilli())
		if err != nil {
			return nil, err
		}
		inserted, err := res.RowsAffected()
		switch {
		case err != nil:
			return nil, err
		case inserted == 0: // another member of the group was faster
			done = append(done, Repeated)
			continue
		case results[i] == Done && r.Apply != nil:
			if err := r.Apply(ctx, tx, e); err != nil {
				return nil, fmt.Errorf("event %q of order %q: %w", e.ID, e.OrderID, err)
			}
		}
		done = append(done, results[i])
	}
	return done, nil
}

// Key returns the key of an event for rows and providers: the SHA-256 of its id in hex, which every
// collation compares exactly.
func Key(eventID string) string {
	sum := sha256.Sum256([]byte(eventID))
	return hex.EncodeToString(sum[:])
}
