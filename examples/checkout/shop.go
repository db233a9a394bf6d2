package checkout

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"orderclose"
	"orderclose/internal/store"
	"orderclose/producer"
)

// Defaults of Options.
const (
	DefaultMaxStale      = 5 * time.Second
	DefaultWelcome       = 100
	DefaultViewPrefix    = "checkout:order:"
	DefaultPublishWithin = time.Second
)

// publishPause is how long publishing is left alone after a failure, so that a
// Kafka that is away does not make every checkout slow. The sweep finds what was
// not published.
const publishPause = 2 * time.Second

// Producer schedules the close of an order; *producer.Producer is one.
type Producer interface {
	// Order returns an order with its due time, by the delay of its category.
	Order(id string, createdAt time.Time, categories ...string) orderclose.Order
	// Schedule appends the order's record.
	Schedule(ctx context.Context, order orderclose.Order) error
}

// Outbox schedules the close of an order in the transaction that writes it;
// *producer.Outbox is one.
type Outbox interface {
	Add(ctx context.Context, tx producer.Execer, order orderclose.Order) error
}

// Closer closes orders that are unpaid and due, by the same transaction as the
// pipeline; *store.Store is one.
type Closer interface {
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Metrics takes what there is to count. Its methods must not block.
type Metrics interface {
	// PaidAfterClose counts a payment that left a refund intent.
	PaidAfterClose()
	// Unscheduled counts an order whose record could not be published.
	Unscheduled()
	// Touched counts a close that a read or a payment past due has asked for.
	Touched(v orderclose.Verdict)
	// Event counts an event of the topic: done, repeated, other or bad.
	Event(result string)
}

// Options for a Shop. Store and Producer must be set.
type Options struct {
	Store    *store.Store // migrated; CreateTables makes the rest
	Producer Producer
	// Outbox schedules orders with their own transaction. Without one they are
	// published after it, and what Kafka does not take then, or a crash right after the
	// commit prevents, is left to the next sweep.
	Outbox Outbox
	// Closer closes what is touched past due. Default Store; with AskFirst none: what
	// is past due is left to the pipeline, which asks.
	Closer Closer
	Redis  redis.UniversalClient // nil: every read asks the database

	// ViewPrefix is put before the id of an order to make its key in Redis.
	ViewPrefix string
	// MaxStale is for how long a read may miss a change, should Redis have missed it.
	// Default DefaultMaxStale.
	MaxStale time.Duration
	// AskFirst says that closing asks the payment provider first, and so may take a
	// while: a read past due then closes nothing, and only shows "closing".
	AskFirst bool
	// CallbackSecret is the key that the payment provider signs its callbacks with;
	// empty: callbacks are believed as they are, which is for a desk only.
	CallbackSecret string
	// Welcome is how many points a new customer begins with. Default DefaultWelcome.
	Welcome int64
	// PublishWithin bounds how long a checkout without an Outbox waits for Kafka.
	// Default DefaultPublishWithin.
	PublishWithin time.Duration

	Logger  *slog.Logger // default: discard
	Metrics Metrics      // default: none
}

// Shop is what customers and staff do to orders. Its methods may be called from
// any goroutine. Make it with New.
type Shop struct {
	o            Options
	views        *views
	insertIgnore string
	clock        atomic.Pointer[reading]
	publishing   pause
}

// New returns a Shop, or says what is missing in the options.
func New(o Options) (*Shop, error) {
	if o.Store == nil || o.Producer == nil {
		return nil, errors.New("checkout: Options need Store and Producer")
	}
	if o.Closer == nil && !o.AskFirst {
		o.Closer = o.Store
	}
	if o.ViewPrefix == "" {
		o.ViewPrefix = DefaultViewPrefix
	}
	if o.MaxStale <= 0 {
		o.MaxStale = DefaultMaxStale
	}
	if o.Welcome == 0 {
		o.Welcome = DefaultWelcome
	}
	if o.PublishWithin <= 0 {
		o.PublishWithin = DefaultPublishWithin
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	s := &Shop{o: o, insertIgnore: insertIgnore(o.Store.Dialect())}
	s.views = &views{client: o.Redis, prefix: o.ViewPrefix, maxStale: o.MaxStale,
		failed: func(err error) {
			o.Logger.Warn("the view of an order could not be used; the database is asked", "err", err)
		}}
	return s, nil
}

// Order is what a customer sees of an order.
type Order struct {
	ID        string    `json:"id"`
	Status    State     `json:"status"`
	Category  string    `json:"category"`
	CreatedAt time.Time `json:"created_at"`
	DueAt     time.Time `json:"due_at"`
	// SecondsLeft is how long it can still be paid, rounded up; 0 if it cannot.
	SecondsLeft int64 `json:"seconds_left"`
	Version     int64 `json:"version"`
}

// show is an order as it is seen at that moment of the database's clock.
func show(v store.OrderView, now time.Time) Order {
	o := Order{ID: v.ID, Status: State(v.Status.String()), Category: v.Category, CreatedAt: v.CreatedAt, DueAt: v.Due, Version: v.Version}
	if o.Status != Unpaid {
		return o
	}
	left := v.Due.Sub(now)
	if left <= 0 {
		o.Status = Closing
		return o
	}
	o.SecondsLeft = int64((left + time.Second - 1) / time.Second)
	return o
}

// Refusal says that an event may not happen to an order as it is.
type Refusal struct {
	Event Event
	Order Order
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("order %q is %s: %s is not possible", r.Order.ID, r.Order.Status, r.Event)
}

// Basket is what a customer wants to order.
type Basket struct {
	ID       string `json:"id"` // of the order; empty: one is made
	Customer string `json:"customer"`
	Category string `json:"category"`
	Items    []Line `json:"items"`
	Points   int64  `json:"points"` // spent on it; they come back if it is closed
}

// Line is one line of a basket.
type Line struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// ErrFewPoints says that a customer has fewer points than are to be spent.
var ErrFewPoints = errors.New("too few points")

// Create makes an order: it is written with its due time, its stock, its points,
// and what schedules its close in one transaction. Without an Outbox it is
// scheduled after that; if Kafka does not take the record the order stands all the
// same, and the sweep closes it if it is not paid. The errors are those of Store.CreateOrder, ErrFewPoints and ErrOtherRequest.
func (s *Shop) Create(ctx context.Context, r Request, b Basket) (Reply, error) {
	if b.ID == "" {
		b.ID = "o-" + newID()
	}
	items := make([]store.Item, len(b.Items))
	for i, l := range b.Items {
		items[i] = store.Item(l)
	}
	var v store.OrderView
	reply, err := s.once(ctx, r, func(t *store.Tx) (int, any, error) {
		now, err := t.Now() // the clock that will judge the due time sets it
		if err != nil {
			return 0, nil, err
		}
		if err := s.takePoints(ctx, t.SQL(), b); err != nil {
			return 0, nil, err
		}
		order := s.o.Producer.Order(b.ID, now, b.Category)
		if err := t.CreateOrder(order, items); err != nil {
			return 0, nil, err
		}
		if s.o.Outbox != nil {
			if err := s.o.Outbox.Add(ctx, t.SQL(), order); err != nil {
				return 0, nil, err
			}
		}
		v, err = t.ViewOrder(b.ID)
		return http.StatusCreated, show(v, v.At), err
	})
	if err == nil && !reply.Repeated {
		s.seen(ctx, v)
		if s.o.Outbox == nil {
			s.publish(ctx, v.Order)
		}
	}
	return reply, err
}

// takePoints writes whose order it is and takes the points that are spent on it.
func (s *Shop) takePoints(ctx context.Context, tx *sql.Tx, b Basket) error {
	if _, err := inserted(ctx, tx, s.insertIgnore+"checkout_customers (customer, points) VALUES (?, ?)", b.Customer, s.o.Welcome); err != nil {
		return err
	}
	if b.Points > 0 {
		enough, err := inserted(ctx, tx, "UPDATE checkout_customers SET points = points - ? WHERE customer = ? AND points >= ?", b.Points, b.Customer, b.Points)
		if err != nil {
			return err
		}
		if !enough {
			return fmt.Errorf("customer %q: %w", b.Customer, ErrFewPoints)
		}
	}
	// Ignored if it is there: then so is the order, which says so itself.
	_, err := inserted(ctx, tx, s.insertIgnore+"checkout_orders (order_id, customer, points) VALUES (?, ?, ?)", b.ID, b.Customer, b.Points)
	return err
}

// publish schedules the close of an order that is committed.
func (s *Shop) publish(ctx context.Context, o orderclose.Order) {
	err := errors.New("kafka was away a moment ago")
	if !s.publishing.on() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.PublishWithin)
		err = s.o.Producer.Schedule(ctx, o)
		cancel()
		if err == nil {
			return
		}
		s.publishing.begin(publishPause)
	}
	s.o.Metrics.Unscheduled()
	s.o.Logger.Warn("an order was not scheduled; the next sweep finds it", "order", o.ID, "due", o.Due, "err", err)
}

// Get shows an order. One that is past due is closed first.
func (s *Shop) Get(ctx context.Context, id string) (Order, error) {
	if now, ok := s.now(); ok {
		if v, ok := s.views.get(ctx, id, now); ok {
			return show(v, now), nil
		}
	}
	v, err := s.read(ctx, id)
	if err != nil {
		return Order{}, err
	}
	if v.PastDue() && !s.o.AskFirst {
		if v, err = s.touch(ctx, v); err != nil {
			return Order{}, err
		}
	}
	return show(v, v.At), nil
}

// read reads an order from the database.
func (s *Shop) read(ctx context.Context, id string) (store.OrderView, error) {
	asked := time.Now()
	v, err := s.o.Store.ViewOrder(ctx, id)
	if err == nil {
		s.clock.Store(&reading{asked, v.At})
		s.seen(ctx, v)
	}
	return v, err
}

// seen keeps the view of an order that was just read from the database, or
// changed there.
func (s *Shop) seen(ctx context.Context, v store.OrderView) { s.views.put(ctx, v) }

// reading is what the database's clock showed.
type reading struct{ asked, shown time.Time }

// now is the database's clock, going by its last answer, and never behind it: what
// the answer took counts as time that has passed since. ok is false while nobody
// has asked. Our own clock measures only how long ago that was, so that setting
// it changes nothing.
func (s *Shop) now() (now time.Time, ok bool) {
	r := s.clock.Load()
	if r == nil {
		return time.Time{}, false
	}
	return r.shown.Add(time.Since(r.asked)), true
}

// touch closes an order that is past due, and reads it again. It may stay unpaid:
// a payment may be pending, or somebody else hold its row for long. The pipeline
// sees to it then.
func (s *Shop) touch(ctx context.Context, v store.OrderView) (store.OrderView, error) {
	if s.o.Closer == nil {
		return v, nil
	}
	outcomes, err := s.o.Closer.CloseOrders(ctx, orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: v.ID}})
	switch {
	case errors.Is(err, orderclose.ErrUnavailable):
		return v, err
	case err != nil || len(outcomes) != 1:
		s.o.Metrics.Touched(orderclose.Failed)
		s.o.Logger.Warn("an order past due could not be closed on the spot", "order", v.ID, "err", err)
	default:
		s.o.Metrics.Touched(outcomes[0].Verdict)
	}
	return s.read(ctx, v.ID)
}

// touches is how often an order is found past due before it is left to the
// pipeline.
const touches = 2

// errPastDue ends a transaction that found an order past due.
var errPastDue = errors.New("past due")

// happen has an event happen to an order, if the table allows it, by do. An order
// that is past due is closed first, and then refuses it. What do returns is
// answered; a do that did not win returns an error that is a *Refusal.
func (s *Shop) happen(ctx context.Context, r Request, id string, e Event, do func(*store.Tx, store.OrderView) (status int, answer any, err error)) (Reply, error) {
	for try := 1; ; try++ {
		var past store.OrderView
		reply, err := s.once(ctx, r, func(t *store.Tx) (int, any, error) {
			v, err := t.ViewOrder(id)
			if err != nil {
				return 0, nil, err
			}
			if v.PastDue() {
				past = v
				return 0, nil, errPastDue
			}
			if _, ok := Next(State(v.Status.String()), e); !ok {
				return 0, nil, &Refusal{e, show(v, v.At)}
			}
			return do(t, v)
		})
		if !errors.Is(err, errPastDue) {
			return reply, err
		}
		if try > touches {
			return reply, &Refusal{e, show(past, past.At)}
		}
		if _, err := s.touch(ctx, past); err != nil {
			return reply, err
		}
	}
}

// steps is what the store does for an event of staff or customer.
var steps = map[Event]func(*store.Tx, string) (store.Answer, error){
	Cancel:  (*store.Tx).Cancel,
	Ship:    (*store.Tx).Ship,
	Confirm: (*store.Tx).Confirm,
}

// Do cancels, ships or confirms an order. The error may be a *Refusal,
// ErrOtherRequest, store.ErrNoOrder, or orderclose.ErrUnavailable.
func (s *Shop) Do(ctx context.Context, r Request, id string, e Event) (Reply, error) {
	step, ok := steps[e]
	if !ok {
		return Reply{}, fmt.Errorf("checkout: nobody does %q to an order", e)
	}
	var after store.OrderView
	reply, err := s.happen(ctx, r, id, e, func(t *store.Tx, before store.OrderView) (int, any, error) {
		answer, err := step(t, id)
		if err != nil {
			return 0, nil, err
		}
		if after, err = t.ViewOrder(id); err != nil {
			return 0, nil, err
		}
		next, _ := Next(State(before.Status.String()), e)
		if string(answer) != string(next) { // somebody was faster
			return 0, nil, &Refusal{e, show(after, after.At)}
		}
		if e == Cancel {
			if err := s.givePoints(ctx, t.SQL(), id); err != nil {
				return 0, nil, err
			}
		}
		return http.StatusOK, show(after, after.At), nil
	})
	if err == nil && !reply.Repeated {
		s.seen(ctx, after)
	}
	return reply, err
}

// givePoints gives back the points that were spent on an order.
func (s *Shop) givePoints(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, "UPDATE checkout_customers SET points = points + (SELECT points FROM checkout_orders WHERE order_id = ?)"+
		" WHERE customer = (SELECT customer FROM checkout_orders WHERE order_id = ?)", id, id)
	return err
}

// newID returns something that nobody can guess and no other has.
func newID() string { return strings.ToLower(rand.Text()) }

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) PaidAfterClose()            {}
func (noMetrics) Unscheduled()               {}
func (noMetrics) Touched(orderclose.Verdict) {}
func (noMetrics) Event(string)               {}
