// Package compensator closes every order that is unpaid and overdue, whatever Kafka or Redis have lost. Create a
// Compensator with New and call Run. Call Sweep for one pass by hand.
//
// One Compensator at a time holds the lock, and runs the loop. A turn of the loop begins every 5 s. It reads the orders
// that have been due for more than 5 s, and closes them by the Store of the pipeline:
//
//  1. the news: orders that came due since the last turn, the newest first
//  2. older orders, from the position of the present pass over all overdue orders
//
// Each of the two has a share of the turn, so neither waits for the other. They are the fast lane: pages of orders that were never tried. A page that
// fails, or gives no answer, is not tried again. Its orders go to the slow lane, which works beside the turns, with calls of its own. It splits them
// down to the orders that fail alone. These rest: 5 s, doubled up to 5 minutes. Then they come to the slow lane as pages. So orders that cannot
// be closed cost little, and delay no others.
//
// Of N orders that need the loop each closes within 12 s + N/R after its due time, or after the end of the fault. R is the lesser of
// Options.Rate and what two calls of the Store close at once. The promise is 18 s longer if the holder of the lock is killed.
// Correctness depends only on the Store, which closes each order once: two loops at the same time close the same orders as one.
//
// The first pass of each period, such as each hour, is the hourly compensation. The SweepLog and the records say whether it ended.
//
//	compensator.go  options, start and stop
//	hold.go         the lock (internal/lock), and the tasks of the process that holds it
//	loop.go         the turns of the loop
//	turn.go         one turn: news, older orders, what the slow lane has found
//	pause.go        pauses of all closing, or of a category
//	read.go         reads of due times, which are bounded in rows and time
//	newest.go       compares the creation times of new orders with the database's clock
//	pass.go         the position of the pass, and when the next one begins
//	lanes.go        the fast lane of pages, and the slow lane of what fails
//	rest.go         orders that could not be closed rest here
//	hour.go         what the loop did in each period, in a row and a record
//	sweep.go        a pass by hand, and its report
//	calls.go        calls of the user's code: time limits, panics
//	metrics.go      metrics
package compensator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/clock"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/retry"
)

// Stage is the name of a compensator in logs.
const Stage = "compensator"

// Defaults of Options.
const (
	DefaultPeriod   = time.Hour
	DefaultPageSize = 500
	// DefaultRate is a fifth to a third of what a database with two cores closes (16 to 25 k orders/s,
	// make bench-sweep). The loop leaves the rest of the capacity to closers and checkout.
	DefaultRate = 5000
)

// Grace is how long an order is left to the pipeline after its due time. A busy pipeline closes an order within milliseconds.
const Grace = 5 * time.Second

// Store is the part of the database that a Compensator uses. A call that takes 10 s counts as failed, and its context ends. A panic is an error.
type Store interface {
	// Now returns the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Overdue returns up to limit unpaid orders that are due at or before cutoff, ordered by due time and id, after the given order. The zero Order
	// starts at the beginning.
	Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error)
	// CloseOrders closes the requested orders that are unpaid and due; see closer.Store, also for the optional methods Probe and MaxBatch.
	CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error)
}

// Reader reads overdue orders with a bound on the rows of each read.
type Reader interface {
	// BeginTurn reads the clock and the pauses, and whether no unpaid order was due at a time or before.
	BeginTurn(ctx context.Context, at time.Time) (overdue.Begin, error)
	// ReadOverdue reads a window. An error that wraps overdue.ErrSlow says that a shorter one may succeed.
	ReadOverdue(ctx context.Context, w overdue.Window) (overdue.Found, error)
}

// SweepLog keeps a row for each period of a pipeline.
type SweepLog interface {
	// SweepHour returns the row of a period; only Begin is set if there is none.
	SweepHour(ctx context.Context, pipeline string, begin time.Time) (overdue.Hour, error)
	// AddSweep adds counts to the row.
	AddSweep(ctx context.Context, pipeline string, begin time.Time, c overdue.Counts) error
	// EndSweep writes the state of the row: overdue.Finished, or overdue.Unfinished unless it is finished already.
	EndSweep(ctx context.Context, pipeline string, begin time.Time, state string, took time.Duration) error
}

// The types of what a Reader, a SweepLog and Options.Leases take and return, and of Options.Skews.
type (
	Skews         = clock.Skews
	LeaseDatabase = lock.Database
	Window        = overdue.Window
	Begin         = overdue.Begin
	Found         = overdue.Found
	Counts        = overdue.Counts
	Hour          = overdue.Hour
)

// Options configure a Compensator. Store is required.
type Options struct {
	Store Store
	// Reader reads overdue orders and pauses in place of Store.Overdue. Default: by pages of Store.Overdue, without pauses.
	Reader Reader
	Name   string // identifies the pipeline in the SweepLog; at most 249 ASCII characters
	// SweepLog keeps what the loop did in each period. Default: nowhere.
	SweepLog SweepLog
	// Redis and Leases have the lock that keeps other processes from the loop and the Tasks: a key in Redis, or a row of the database while Redis
	// is nil, does not answer within a second, or takes no writes. Without either every process works, which is harmless but costs
	// database time. Redis must have ContextTimeoutEnabled in its options: otherwise an extension on a connection that hangs may outlast the lock.
	Redis   redis.UniversalClient
	Leases  lock.Database
	LockKey string // default lock:scan_unpaid_orders
	Process string // identifies this process in the row; required with Leases
	// Tasks are what the holder does beside the loop.
	Tasks    []Task
	Period   time.Duration // time between two hourly compensations, by the database's clock; default DefaultPeriod
	Every    time.Duration // time from the begin of a turn to that of the next; default 5 s. A failed turn is repeated after 5 s
	PageSize int           // orders per transaction, at most; default: a tenth of Rate, so that a slow loop is even, and DefaultPageSize at most
	// Rate limits the orders per second that the loop tries. Default DefaultRate; negative: no limit.
	Rate int
	// Skews compares the creation times of new orders with the clock of the database, if Reader has them. Default: they are not compared.
	Skews *Skews
	// Alone says that no pipeline closes orders beside the loop. Then Grace does not apply, and the orders that the loop closes were not missed.
	Alone bool
	// Category returns the label value for an order's category in the metric of lateness. Each value adds a histogram, so it must return few. Several
	// goroutines call it at once. Default: all orders have the value "default".
	Category func(category string) string
	// OnHang is called with the reason when a call of the Store, Reader or SweepLog ignores the end of its context. It must end the
	// process: the call cannot be stopped, and the loop waits for it. Default: panic.
	OnHang func(why string)
	// LockChecked, if not nil, is called after each attempt to take the first lock; nil: its server answers.
	LockChecked func(err error)
	// TurnEnded, if not nil, is called after each turn, with the reason if orders could not be read or closed, and with nil when another process has
	// held the lock for a minute.
	TurnEnded func(err error)
	Logger    *slog.Logger // default: warnings and errors, to slog.Default
	// Registerer gets the metrics (orderclose_…). Compensators of one process may share it. Default: no metrics.
	Registerer prometheus.Registerer
}

// Compensator runs the loop. Create it with New.
type Compensator struct {
	o       Options
	metrics *sweepMetrics
	calls   *calls
	locks   []lock.Lock // the first that answers counts
}

// New returns a Compensator, or an error if the options are invalid.
func New(o Options) (*Compensator, error) {
	if o.LockChecked == nil {
		o.LockChecked = func(error) {}
	}
	if o.TurnEnded == nil {
		o.TurnEnded = func(error) {}
	}
	if o.OnHang == nil {
		o.OnHang = func(why string) { panic("compensator: " + why) }
	}
	o.Period, o.Every = cmp.Or(o.Period, DefaultPeriod), cmp.Or(o.Every, turnTime)
	if o.Rate = cmp.Or(o.Rate, DefaultRate); o.Rate > 0 && o.PageSize == 0 {
		o.PageSize = min(max(o.Rate/10, 1), DefaultPageSize)
	}
	o.PageSize = cmp.Or(o.PageSize, DefaultPageSize)
	if o.Reader == nil {
		o.Reader = pager{o.Store, o.PageSize}
	}
	o.Logger = retry.LimitLogs(o.Logger)
	m, err := newMetrics(o.Registerer, o.Category)
	if err != nil {
		return nil, fmt.Errorf("compensator: %w", err)
	}
	locks, err := lock.New(lock.Options{Client: o.Redis, Database: o.Leases, Key: o.LockKey, Holder: o.Process})
	if err != nil {
		return nil, fmt.Errorf("compensator: %w", err)
	}
	c := &calls{onHang: o.OnHang, logger: o.Logger}
	return &Compensator{o: o, locks: locks, metrics: m, calls: c}, nil
}

// Run works whenever this process holds the lock, until ctx ends. It returns nil when all its goroutines have stopped.
func (c *Compensator) Run(ctx context.Context) error {
	c.metrics.every.Set(c.o.Every.Seconds())
	h := &holder{Compensator: c, resign: make(chan struct{}, 1)}
	l := c.newLoop()
	l.giveBack = h.giveBack
	tasks := append([]Task{{Do: l.do, Idle: l.idle}}, c.o.Tasks...)
	h.run(ctx, tasks)
	_ = l.lanes.search.Wait() // ctx has ended
	return nil
}
