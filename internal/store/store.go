package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"orderclose/internal/tables"
)

// DefaultMaxOpenConns is the size of the connection pool unless Options say
// otherwise. Two transactions at once keep a database busy (make bench-close); the
// others are for closer, sweep, dispatcher and what looks at the database beside
// them in one process.
const DefaultMaxOpenConns = 16

// connMaxLifetime bounds how long a server that another one replaced can keep a pooled
// connection, if it says nothing that makes explain close it.
const connMaxLifetime = 3 * time.Minute

// Options say where the database is.
type Options struct {
	// DSN names a MySQL or MariaDB database as go-sql-driver does:
	// user:password@tcp(host:port)/database?param=value. The settings that
	// correctness rests on (UTC, READ COMMITTED, exact ids) are made whatever it
	// says; its time-outs are kept.
	DSN string
	// Orders says in which tables orders are; nil: those that Migrate makes.
	Orders *tables.Mapping
	// OrdersAt says where a key of Orders stands, as file:line:column, for what
	// CheckMapping finds; nil: it is not known.
	OrdersAt func(path string) string
	// MaxOpenConns bounds the connection pool; 0 is DefaultMaxOpenConns.
	MaxOpenConns int
}

// ErrOwnTables says that something works on the reference schema only, and that
// topics.yaml maps orders to other tables.
var ErrOwnTables = errors.New("orders are in tables of the shop's own (orders in topics.yaml), and this knows only those of the reference schema")

// Store is the database of orders. Its methods may be called from any goroutine.
type Store struct {
	gorm    *gorm.DB
	dialect Dialect
	// mapped: the orders are in the user's own tables, which Migrate does not make.
	mapped    bool
	ordersAt  func(path string) string // of Options; may be nil
	maxIdle   int                      // of the pool; 0: Open did not make it
	hang      time.Duration            // the longest wait for one answer; 0: the database is in this process
	q         *statements
	undecided undecided
	held      held        // orders
	heldStock held        // SKUs
	respell   atomic.Bool // lines were seen whose SKUs the stock spells otherwise
	// migrator opens a connection on which a statement may take as long as it
	// needs; nil: the store's own will do.
	migrator func() (*sql.DB, error)
	inHand   *inHand // of the outboxes; nil: row locks do it
}

// Open prepares a Store on MySQL or MariaDB. It does not connect: the first
// method that needs the server does, and Ping tells whether it is there. The
// error of a DSN that cannot be read never shows the password.
func Open(o Options) (*Store, error) {
	cfg, err := parseDSN(o.DSN)
	if err != nil {
		return nil, err
	}
	if cfg.DBName == "" {
		return nil, errors.New("the database's DSN names a server and no database; it ends in /database")
	}
	pool, err := openPool(cfg)
	if err != nil {
		return nil, err
	}
	if o.MaxOpenConns <= 0 {
		o.MaxOpenConns = DefaultMaxOpenConns
	}
	pool.SetMaxOpenConns(o.MaxOpenConns)
	pool.SetMaxIdleConns(o.MaxOpenConns)
	pool.SetConnMaxLifetime(connMaxLifetime)
	db, err := gorm.Open(mysql.New(mysql.Config{
		Conn: pool, DSNConfig: cfg,
		SkipInitializeWithVersion: true, // it would ask the server
	}), GormConfig())
	if err != nil {
		_ = pool.Close()
		return nil, fmt.Errorf("store: %w", err)
	}
	s, err := NewMapped(db, mysqlDialect, o.Orders)
	if err != nil {
		_ = pool.Close()
		return nil, err
	}
	s.ordersAt, s.maxIdle, s.hang = o.OrdersAt, o.MaxOpenConns, cfg.ReadTimeout
	s.migrator = func() (*sql.DB, error) { return openPool(withoutReadTimeout(cfg)) }
	return s, nil
}

// GormConfig is how the store wants gorm: no transaction nobody asked for, no
// prepared statements (they cost a round trip), no log (errors are returned), no
// ping while opening.
func GormConfig() *gorm.Config {
	return &gorm.Config{
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		Logger:                 logger.Discard,
	}
}

// New returns a Store on a database that is open already, configured as
// GormConfig says. The Store owns it from here on.
func New(db *gorm.DB, d Dialect) *Store {
	s, err := NewMapped(db, d, nil)
	if err != nil {
		panic("store: the reference schema: " + err.Error()) // a constant
	}
	return s
}

// NewMapped is New for orders in other tables; nil is those that Migrate makes.
// The error says what is wrong with the mapping.
func NewMapped(db *gorm.DB, d Dialect, orders *tables.Mapping) (*Store, error) {
	m := orders
	if m == nil {
		m = referenceMapping(d)
	}
	q, err := newStatements(m, d)
	s := &Store{gorm: db, dialect: d, mapped: orders != nil, q: q}
	if d.oneWriter {
		s.inHand = newInHand()
	}
	return s, err
}

// Close closes the connections.
func (s *Store) Close() error { return s.DB().Close() }

// DB is the connection pool underneath.
func (s *Store) DB() *sql.DB {
	db, err := s.gorm.DB()
	if err != nil {
		panic("store: gorm without a database/sql pool: " + err.Error()) // New was given one
	}
	return db
}

// Ping reports whether the database answers and its session keeps UTC. The error
// wraps orderclose.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	err := s.DB().PingContext(ctx)
	if err == nil && s.dialect.checkZone != nil {
		err = s.dialect.checkZone(ctx, s.DB())
	}
	if err != nil {
		return fmt.Errorf("ping the database: %w", unavailable(ctx, err))
	}
	return nil
}

// Now returns the database's clock, in UTC and whole milliseconds. It is the
// clock that decides whether an order is due.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.now(s.gorm.WithContext(ctx))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", s.explain(ctx, err))
	}
	return now, nil
}

// now reads the clock inside whatever transaction tx is.
func (s *Store) now(tx *gorm.DB) (now time.Time, err error) {
	err = tx.Raw("SELECT ?", s.dialect.now()).Row().Scan(timeInto(&now))
	return now, err
}

// Dialect is the kind of database: whoever reads it past the store has to know
// how times are stored.
func (s *Store) Dialect() DialectName { return s.dialect.Name }
