package producer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/config"
	"orderclose/internal/tables"
)

// Dialect is a kind of database.
type Dialect string

const (
	// MySQL is MySQL 8 and MariaDB 10.6 or newer.
	MySQL Dialect = "mysql"
	// SQLite is for a desk and for tests: there, moments are unix milliseconds, and
	// the clock is this process's.
	SQLite Dialect = "sqlite"
)

// scheduleTable is made by orderclose migrate, also beside tables of the shop's own.
const scheduleTable = "outbox_schedules"

// Execer is a transaction as an Outbox needs it: *sql.Tx is one, *sql.Conn, and
// what gorm has underneath (tx.Statement.ConnPool). *sql.DB is one as well, but
// then the row is committed by itself.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// OutboxOptions for an Outbox. Dialect must be set.
type OutboxOptions struct {
	Dialect Dialect
	// Database has the table outbox_schedules, where it is not the one that the
	// shop's connections are in: the database of ORDERCLOSE_DB_DSN. Not for SQLite.
	Database string
	// TopicsFile is the path of the topics.yaml that dispatchers, relays and closers
	// use too. It sets MaxDelay if that is not set.
	TopicsFile string
	// MaxDelay is how far ahead an order may be due. Default
	// orderclose.DefaultMaxDelay.
	MaxDelay time.Duration
	// Limit, if set, is asked for it at each Add instead: Producer.MaxDelay, of one that
	// takes up changes of its file.
	Limit func() time.Duration
	// Traceparent, if set, returns the W3C trace context of whoever adds an order,
	// which its record then carries; "" is none.
	Traceparent func(ctx context.Context) string
	// Now is the clock that decides what is too far ahead. Default time.Now.
	Now func() time.Time
}

// Outbox schedules orders in the transaction that writes them: each Add is a row
// that orderclose run outbox brings to Kafka, and picks the bucket for when it
// does. So an order is scheduled if and only if its transaction commits, and no
// checkout waits for Kafka. It is safe for concurrent use. Make it with NewOutbox.
type Outbox struct {
	o      OutboxOptions
	insert string
}

// NewOutbox returns an Outbox, or says what is wrong with the options or the topics
// file. It connects to nothing.
func NewOutbox(o OutboxOptions) (*Outbox, error) {
	if o.TopicsFile != "" {
		c, err := config.Load(o.TopicsFile)
		if err != nil {
			return nil, err
		}
		if o.MaxDelay == 0 {
			o.MaxDelay = c.MaxDelay
		}
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = orderclose.DefaultMaxDelay
	}
	if o.Limit == nil {
		o.Limit = func() time.Duration { return o.MaxDelay }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	x := &Outbox{o: o}
	switch o.Dialect {
	case MySQL:
		x.insert = "INSERT INTO " + tableIn(o.Database) + " (order_id, payload, created_at) VALUES (?, ?, UTC_TIMESTAMP(3))"
	case SQLite:
		if o.Database != "" {
			return nil, errors.New("producer: OutboxOptions name a Database, which SQLite has not")
		}
		x.insert = "INSERT INTO " + scheduleTable + " (order_id, payload, created_at) VALUES (?, ?, ?)"
	default:
		return nil, fmt.Errorf("producer: OutboxOptions name the Dialect %q, want %s (also for MariaDB) or %s", o.Dialect, MySQL, SQLite)
	}
	return x, nil
}

// Add writes one row in the caller's transaction, and that is all: it neither
// commits nor asks Kafka. The order's Due is taken as it is; one in the past goes
// straight to the close topic when the transaction has committed. Adding an order
// again is harmless: after its due time in the database was set to an earlier
// moment, this is how the pipeline hears of it.
//
// An order that cannot be scheduled is refused as Schedule does it, with an
// *orderclose.OrderError, before anything is written. Any other error is the
// database's, wrapped: roll the transaction back.
func (x *Outbox) Add(ctx context.Context, tx Execer, order orderclose.Order) error {
	if err := order.Validate(x.o.Now(), x.o.Limit()); err != nil {
		return err
	}
	r := orderclose.Record{Order: order}
	if x.o.Traceparent != nil {
		r.Traceparent = x.o.Traceparent(ctx)
	}
	payload, err := r.SchedulePayload()
	if err != nil {
		return err
	}
	args := []any{order.ID, string(payload)}
	if x.o.Dialect == SQLite {
		args = append(args, x.o.Now().UnixMilli())
	}
	if _, err := tx.ExecContext(ctx, x.insert, args...); err != nil {
		return fmt.Errorf("add order %q to %s: %w", order.ID, scheduleTable, err)
	}
	return nil
}

// tableIn is the table as it stands in a statement.
func tableIn(database string) string {
	if database == "" {
		return scheduleTable
	}
	return tables.Quote(database) + "." + scheduleTable
}
