package db

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
)

// Handle is a database with the statements on its mapped tables. Its methods are safe for concurrent use. If the database failed, the error of
// a method wraps orderclose.ErrUnavailable.
type Handle struct {
	Gorm       *gorm.DB
	Dialect    Dialect
	Address    string // what Database returns
	DSNWarning string // what Warning returns
	// Mapped says that the orders are in the shop's own tables, which Migrate does not create.
	Mapped      bool
	ownStore    atomic.Bool              // see UseOwnStore
	OrdersAt    func(path string) string // Options.OrdersAt; may be nil
	MaxIdle     int                      // idle connections of the pool; 0: Open did not create the pool
	AnswerLimit time.Duration            // the longest wait for one answer of the server; 0: the database is in this process
	Q           *statements
	given       atomic.Pointer[map[string]int64] // as UseDelays got them, in microseconds by category
	takesWrites atomic.Pointer[time.Time]        // when NotReadOnly last said so; nil: it did not
	Migrations  fs.FS                            // the steps of the schema: migrations.Files, to which tests add
	// OpenUnbounded opens a pool without a read timeout, for long statements. It is nil on
	// SQLite, which has no such timeout.
	OpenUnbounded func() (*sql.DB, error)
	// RetryFor and ReadLimit are for tests, in place of the constants retryFor and readLimit; 0: the constant.
	RetryFor, ReadLimit time.Duration
}

// GormConfig returns the configuration that the store needs: no implicit transactions, no
// prepared statements (they cost a round trip), no log (errors are returned), and no ping
// while opening.
func GormConfig() *gorm.Config {
	return &gorm.Config{
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		Logger:                 logger.Discard,
	}
}

// MapOrders writes the statements on the tables of orders, with the values of Options.
func (s *Handle) MapOrders(orders *mapping.Mapping, pipeline string, delays orderclose.Delays) (err error) {
	if s.Mapped = orders != nil; !s.Mapped {
		orders = referenceMapping(s.Dialect)
	}
	s.Q, err = newStatements(orders, s.Dialect, pipeline)
	s.UseDelays(delays)
	return err
}

// UseOwnStore says that a Store of the program has the orders. Then Migrate creates no tables of orders.
func (s *Handle) UseOwnStore() { s.ownStore.Store(true) }

// OwnStore reports whether UseOwnStore was called.
func (s *Handle) OwnStore() bool { return s.ownStore.Load() }

// Close closes the connections.
func (s *Handle) Close() error { return s.DB().Close() }

// Database returns the server and the database that the DSN names, as host:port/database, without
// user and password; "" on SQLite.
func (s *Handle) Database() string { return s.Address }

// Warning returns what is unsafe in the DSN, and what to do, without user and password; "": nothing is.
func (s *Handle) Warning() string { return s.DSNWarning }

// DB returns the underlying connection pool.
func (s *Handle) DB() *sql.DB {
	db, err := s.Gorm.DB()
	if err != nil {
		panic("store: gorm without a database/sql pool: " + err.Error()) // New requires a pool
	}
	return db
}

// Ping reports whether the database answers. The error wraps orderclose.ErrUnavailable, and ErrZone if
// the session of a new connection is not in UTC.
func (s *Handle) Ping(ctx context.Context) error {
	if err := s.DB().PingContext(ctx); err != nil {
		return fmt.Errorf("ping the database: %w", Unavailable(ctx, err))
	}
	return nil
}

// Now returns the database's clock, in UTC and whole milliseconds. This clock decides
// whether an order is due.
func (s *Handle) Now(ctx context.Context) (time.Time, error) {
	now, err := s.NowIn(s.Gorm.WithContext(ctx))
	return now, s.FailedTo(ctx, err, "read the database's clock")
}

// NowIn reads the clock in the transaction tx.
func (s *Handle) NowIn(tx *gorm.DB) (now time.Time, err error) {
	err = tx.Raw("SELECT ?", s.Dialect.Now()).Row().Scan(TimeInto(&now))
	return now, err
}

// Clock returns the clock of a database that has none of its own; nil: the database's clock
// decides.
func (s *Handle) Clock() func() time.Time { return s.Dialect.Clock }
