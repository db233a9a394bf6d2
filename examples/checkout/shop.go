package checkout

import (
	"cmp"
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
	"golang.org/x/sync/singleflight"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/examples/checkout/idfilter"
	"github.com/orderclose/orderclose/examples/checkout/notices"
	"github.com/orderclose/orderclose/examples/checkout/ordercache"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/producer"
)

// Defaults of Options.
const (
	DefaultMaxStale      = 5 * time.Second
	DefaultWelcome       = 100
	DefaultViewPrefix    = "checkout:order:"
	DefaultPublishWithin = time.Second
)

// Producer schedules the close of an order. *producer.Producer implements it.
type Producer interface {
	// OrderWith returns an order with its due time, by the delay of its category and the rules.
	OrderWith(id string, facts orderclose.Facts) orderclose.Order
	// Schedule appends the order's record.
	Schedule(ctx context.Context, order orderclose.Order) error
}

// Outbox schedules the close of an order in the transaction that writes the order.
// *producer.Outbox implements it.
type Outbox interface {
	Add(ctx context.Context, tx orderclose.Tx, order orderclose.Order) error
}

// Closer closes orders that are unpaid and due, with the same transaction as the pipeline.
// The SQL Store of the pipeline implements it.
type Closer interface {
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Metrics counts. Its methods must not block.
type Metrics interface {
	// Unscheduled counts an order whose record could not be published.
	Unscheduled()
	// Touched counts a request to close an order that was found past due by a read, a payment,
	// a cancellation, a shipment or a confirmation. v is the result of the request.
	Touched(v orderclose.Verdict)
	// Event counts an event of the topic for a reader, by a result of package notices.
	Event(reader, result string)
	// Read counts a read of an order by what answered it, such as FromLocal.
	Read(source string)
}

// Options for a Shop. DB, Dialect, Producer and Record are required, and Closer unless AskFirst is set.
type Options struct {
	DB       *sql.DB // migrated, and with the tables of CreateTables
	Dialect  producer.Dialect
	Producer Producer
	// Record records a payment in a transaction of the shop: RecordPayment of a sqlclose.Store.
	Record func(ctx context.Context, tx orderclose.Tx, p sqlclose.Payment) (sqlclose.Recorded, error)
	// Outbox schedules an order in the transaction that creates it. Without an Outbox, the order
	// is published after that transaction. The sweep then closes orders that were not
	// published: Kafka did not accept the record, publishing was paused after a failure, or the
	// process crashed right after the commit.
	Outbox Outbox
	// Closer closes orders that a request finds past due; with AskFirst it must be one that asks
	// the provider first. With AskFirst it may be nil: the pipeline then closes these orders.
	Closer Closer
	Redis  redis.UniversalClient // nil: every read uses the database

	// ViewPrefix is put before an order's id to form its key in Redis.
	ViewPrefix string
	// MaxStale is how long a read may show an old status if Redis missed a change.
	// Default DefaultMaxStale.
	MaxStale time.Duration
	// CacheSize is the number of orders in the cache of this process, before Redis. 0: no cache.
	CacheSize int
	// Filter answers reads of ids that no order has; nil: none. Every program that inserts orders must
	// add their ids.
	Filter *idfilter.Filter
	// Coupons says that the pipeline gives coupons back: its topics.yaml has ReturnCoupons in
	// orders.on_close. Otherwise an order with a coupon is refused.
	Coupons bool
	// SMS and Logistics are the providers of notices. Default: stand-ins, which log.
	SMS, Logistics Provider
	// AskFirst says that a close asks the payment provider first, and so may take a while. A
	// read of an order past due then closes nothing, and shows "closing".
	AskFirst bool
	// CallbackSecret is the key with which the payment provider signs its callbacks. Empty:
	// callbacks are accepted without a signature, which is for development only.
	CallbackSecret string
	// Welcome is how many points a new customer gets. Default DefaultWelcome.
	Welcome int64
	// PublishWithin bounds how long a checkout without an Outbox waits for Kafka.
	// Default DefaultPublishWithin.
	PublishWithin time.Duration

	Logger  *slog.Logger // default: discard
	Metrics Metrics      // default: none
}

// Shop is what customers and staff do to orders. Its methods are safe for concurrent use.
// Create it with New.
type Shop struct {
	o            Options
	orders       *shopdb.Orders
	views        *views
	local        *ordercache.Cache // nil: none
	looking      singleflight.Group
	notices      *notices.Notices
	insertIgnore string
	clock        atomic.Pointer[clockReading]
	publishing   pause
}

// New returns a Shop, or an error for missing options.
func New(o Options) (*Shop, error) {
	if o.DB == nil || o.Dialect == "" || o.Producer == nil || o.Record == nil || o.Closer == nil && !o.AskFirst {
		return nil, errors.New("checkout: Options need DB, Dialect, Producer, Record, and Closer or AskFirst")
	}
	o.ViewPrefix = cmp.Or(o.ViewPrefix, DefaultViewPrefix)
	if o.MaxStale <= 0 {
		o.MaxStale = DefaultMaxStale
	}
	o.Welcome = cmp.Or(o.Welcome, DefaultWelcome)
	if o.PublishWithin <= 0 {
		o.PublishWithin = DefaultPublishWithin
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.SMS == nil {
		o.SMS = &notices.StandIn{Logger: o.Logger.With("provider", ReaderSMS)}
	}
	if o.Logistics == nil {
		o.Logistics = &notices.StandIn{Logger: o.Logger.With("provider", ReaderLogistics)}
	}
	s := &Shop{o: o, orders: shopdb.New(shopdb.Options{DB: o.DB, Dialect: o.Dialect, Record: o.Record}), insertIgnore: insertIgnore(o.Dialect)}
	s.views = &views{client: o.Redis, prefix: o.ViewPrefix, maxStale: o.MaxStale,
		failed: func(err error) {
			o.Logger.Warn("view of an order failed, the database is used", "err", err)
		}}
	var err error
	if o.CacheSize > 0 {
		if s.local, err = ordercache.New(o.CacheSize); err != nil {
			return nil, err
		}
	}
	s.notices, err = s.newNotices()
	return s, err
}

// Order is an order as customers see it.
type Order struct {
	ID        string    `json:"id"`
	Status    State     `json:"status"`
	Category  string    `json:"category"`
	CreatedAt time.Time `json:"created_at"`
	DueAt     time.Time `json:"due_at,omitzero"` // zero: the order is never closed
	// SecondsLeft is how long the order can still be paid, rounded up; 0, and not in JSON, if it cannot, or if it is never closed.
	SecondsLeft int64 `json:"seconds_left,omitempty"`
	Version     int64 `json:"version"`
}

// show returns an order as it is at now, by the database's clock.
func show(v shopdb.View, now time.Time) Order {
	o := Order{ID: v.ID, Status: State(v.Status.String()), Category: v.Category, CreatedAt: v.CreatedAt, DueAt: v.Due, Version: v.Version}
	if orderclose.IsNever(v.Due) {
		o.DueAt = time.Time{}
		return o
	}
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

// Refusal says that the state of an order does not allow an event.
type Refusal struct {
	Event Event
	Order Order
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("order %q is %s: %s is not possible", r.Order.ID, r.Order.Status, r.Event)
}

// maxTouches is how often one request tries to close an order that it finds past due. After that
// it leaves the order to the pipeline.
const maxTouches = 2

// errPastDue rolls back a transaction that found the order past due.
var errPastDue = errors.New("past due")

// apply applies an event to an order by do, if the state allows it. The result of do is the answer.
// If the order is past due, apply does not call do: it requests a close (touch) and looks at the
// order again, at most maxTouches times, and then refuses the event. If another event was faster,
// do returns an error that is a *Refusal.
func (s *Shop) apply(ctx context.Context, r Request, id string, e Event, do func(*shopdb.Tx, shopdb.View) (status int, answer any, err error)) (Reply, error) {
	for try := 1; ; try++ {
		var past shopdb.View
		reply, err := s.idempotent(ctx, r, func(t *shopdb.Tx) (int, any, error) {
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
		if try > maxTouches {
			return reply, &Refusal{e, show(past, past.At)}
		}
		if _, err := s.touch(ctx, past); err != nil {
			return reply, err
		}
	}
}

// steps holds the store's method for each event of staff or customers.
var steps = map[Event]func(*shopdb.Tx, string) (shopdb.Answer, error){
	Cancel:  (*shopdb.Tx).Cancel,
	Ship:    (*shopdb.Tx).Ship,
	Confirm: (*shopdb.Tx).Confirm,
}

// Do cancels, ships or confirms an order. The error is a *Refusal, or wraps ErrOtherRequest,
// shopdb.ErrNoOrder, orderclose.ErrUnavailable or orderclose.ErrContended.
func (s *Shop) Do(ctx context.Context, r Request, id string, e Event) (Reply, error) {
	step, ok := steps[e]
	if !ok {
		return Reply{}, fmt.Errorf("checkout: unknown event %q", e)
	}
	var after shopdb.View
	reply, err := s.apply(ctx, r, id, e, func(t *shopdb.Tx, before shopdb.View) (int, any, error) {
		answer, err := step(t, id)
		if err != nil {
			return 0, nil, err
		}
		if after, err = t.ViewOrder(id); err != nil {
			return 0, nil, err
		}
		next, _ := Next(State(before.Status.String()), e)
		if string(answer) != string(next) { // another event was faster
			return 0, nil, &Refusal{e, show(after, after.At)}
		}
		if e == Cancel {
			if err := errors.Join(s.returnPoints(ctx, t.SQL(), id), s.returnCoupon(ctx, t.SQL(), id)); err != nil {
				return 0, nil, err
			}
		}
		return http.StatusOK, show(after, after.At), nil
	})
	if err == nil && !reply.Repeated {
		s.changed(ctx, after)
	}
	return reply, err
}

// returnPoints returns the points that were spent on an order to the customer. Each call returns
// them again: the caller's transaction must ensure that there is one call for each order.
func (s *Shop) returnPoints(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, "UPDATE checkout_customers SET points = points + (SELECT points FROM checkout_orders WHERE order_id = ?)"+
		" WHERE customer = (SELECT customer FROM checkout_orders WHERE order_id = ?)", id, id)
	return err
}

// newID returns an unguessable unique id.
func newID() string { return strings.ToLower(rand.Text()) }

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Unscheduled()               {}
func (noMetrics) Touched(orderclose.Verdict) {}
func (noMetrics) Event(string, string)       {}
func (noMetrics) Read(string)                {}
