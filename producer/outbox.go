package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/tracing"
	"github.com/orderclose/orderclose/internal/wire"
)

// Dialect is the kind of database.
type Dialect string

const (
	// MySQL is MySQL 8 and MariaDB 10.6 or newer.
	MySQL Dialect = "mysql"
	// Postgres is PostgreSQL 13 or newer.
	Postgres Dialect = "postgres"
	// SQLite is for development and tests. Times are unix milliseconds, and the clock
	// is this process's.
	SQLite Dialect = "sqlite"
)

// scheduleTable is created by orderclose migrate, also beside a shop's own tables.
const scheduleTable = "outbox_schedules"

// OutboxOptions configure an Outbox. Dialect is required.
type OutboxOptions struct {
	Dialect Dialect
	// Database is the database (of PostgreSQL: the schema) that has the table outbox_schedules: that of
	// ORDERCLOSE_DB_DSN. Set it if the shop's connections use another database. Not
	// for SQLite.
	Database string
	// TopicsFile is the path of the topics.yaml that dispatchers, relays and closers
	// use. It only sets MaxDelay, if MaxDelay is not set.
	TopicsFile string
	// MaxDelay is the longest time from now to an order's due time. Default:
	// orderclose.DefaultMaxDelay.
	MaxDelay time.Duration
	// MaxDelayFunc, if set, replaces MaxDelay and is called by each Add. Use
	// Producer.MaxDelay of a Producer that reloads its file.
	MaxDelayFunc func() time.Duration
	// Traceparent returns the caller's W3C trace context, which the order's record then
	// carries; "" means none. Default: that of the span of OpenTelemetry in ctx, if it is sampled.
	Traceparent func(ctx context.Context) string
	// OnDueAlready is called with each order that is due when Add is called, by Now: see Options.OnDueAlready. Add adds the order.
	OnDueAlready func(order orderclose.Order)
	// Now is the clock for the check of MaxDelay. Default: time.Now.
	Now func() time.Time
}

// Outbox schedules orders in the transaction that writes them. Each Add inserts a row.
// A dispatcher (orderclose run outbox, or the role pipeline.Outbox) later picks the
// bucket and publishes the row to Kafka. So an order is scheduled if and only if its
// transaction commits, and no checkout waits for Kafka. It is safe for concurrent use. Create it with NewOutbox.
type Outbox struct {
	o      OutboxOptions
	insert string
}

// NewOutbox returns an Outbox, or an error if the options or the topics file are
// invalid. It opens no connection.
func NewOutbox(o OutboxOptions) (*Outbox, error) {
	if o.TopicsFile != "" {
		c, err := config.Load(o.TopicsFile)
		if err != nil {
			return nil, err
		}
		o.MaxDelay = cmp.Or(o.MaxDelay, c.MaxDelay)
	}
	o.MaxDelay = cmp.Or(o.MaxDelay, orderclose.DefaultMaxDelay)
	if o.MaxDelayFunc == nil {
		o.MaxDelayFunc = func() time.Duration { return o.MaxDelay }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Traceparent == nil {
		o.Traceparent = tracing.Of
	}
	x := &Outbox{o: o}
	switch o.Dialect {
	case MySQL:
		x.insert = "INSERT INTO " + tableIn(o.Database, mapping.Quote(o.Database)) + " (order_id, payload, created_at) VALUES (?, ?, UTC_TIMESTAMP(3))"
	case Postgres:
		x.insert = "INSERT INTO " + tableIn(o.Database, `"`+o.Database+`"`) + " (order_id, payload, created_at) VALUES ($1, $2, " +
			"date_trunc('milliseconds', statement_timestamp()))"
	case SQLite:
		if o.Database != "" {
			return nil, errors.New("producer: OutboxOptions.Database must be empty for SQLite")
		}
		x.insert = "INSERT INTO " + scheduleTable + " (order_id, payload, created_at) VALUES (?, ?, ?)"
	default:
		return nil, fmt.Errorf("producer: OutboxOptions.Dialect is %q, want %s (also for MariaDB), %s or %s", o.Dialect, MySQL, Postgres, SQLite)
	}
	return x, nil
}

// Add inserts one row in the caller's transaction: orderclose.SQL(tx) of a *sql.Tx, or of gorm's
// ConnPool, and pgxtx.New(tx) of a pgx.Tx. It neither commits nor contacts
// Kafka. It uses the order's Due as given; an order with a due time in the past goes
// straight to the close topic after the commit. Of an order that is never closed
// (orderclose.IsNever) it adds nothing. Adding an order again is harmless.
// Add it again after its due time in the database was moved to an earlier time: only
// then does the pipeline know the new time.
//
// Add rejects an order that cannot be scheduled with an *orderclose.OrderError, as
// Schedule does, before it writes anything. Any other error comes from encoding the
// order or, wrapped, from the database: roll the transaction back. sqlclose.Classify says whether to run it again.
func (x *Outbox) Add(ctx context.Context, tx orderclose.Tx, order orderclose.Order) error {
	if orderclose.IsNever(order.Due) {
		return orderclose.ValidateID(order.ID)
	}
	if err := order.Validate(x.o.Now(), x.o.MaxDelayFunc()); err != nil {
		return err
	}
	dueAlready(order, x.o.Now(), x.o.OnDueAlready)
	payload, err := wire.Record{Order: order, Traceparent: x.o.Traceparent(ctx)}.SchedulePayload()
	if err != nil {
		return err
	}
	args := []any{order.ID, string(payload)}
	if x.o.Dialect == SQLite {
		args = append(args, x.o.Now().UnixMilli())
	}
	if _, err := tx.Exec(ctx, x.insert, args...); err != nil {
		return fmt.Errorf("add order %q to %s: %w", order.ID, scheduleTable, err)
	}
	return nil
}

// tableIn returns the name of the schedule table for a statement. quoted is the database, quoted.
func tableIn(database, quoted string) string {
	if database == "" { //mutant:other-outbox-written
		return scheduleTable
	}
	return quoted + "." + scheduleTable
}
