package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// DefaultMaxOpenConns is the default size of the connection pool. Two transactions at once
// keep a database busy (make bench-close). The other connections serve the closer, the
// sweep, the dispatcher and monitoring in one process.
const DefaultMaxOpenConns = 16

// connMaxLifetime bounds how long the pool keeps a connection to a server that was replaced,
// if the server returns no error on which explain closes the connection.
const connMaxLifetime = 3 * time.Minute

// Options select the database.
type Options struct {
	// DSN names a MySQL or MariaDB database in the format of go-sql-driver:
	// user:password@tcp(host:port)/database?param=value. Open overrides the settings that
	// correctness depends on (UTC, READ COMMITTED, exact ids). It keeps the timeouts.
	DSN string
	// TLS encrypts the connections to the server of DSN. An empty ServerName stands for its host.
	// Nil: the DSN's parameter tls says whether TLS is used. tls=skip-verify and tls=preferred are
	// errors.
	TLS *tls.Config
	// DB is a pool of the program's own on a MySQL or MariaDB database, instead of DSN. The store
	// takes up to MaxOpenConns connections out of it for itself, and at most half of the pool's
	// (SetMaxOpenConns, which must be called before). It sets up their sessions, and closes each
	// that it has not used for ten seconds. Each statement ends after 15 s, whether the pool has a
	// read timeout or not. The program must have opened the pool with
	// parseTime=true, loc=UTC and without clientFoundRows, which cannot be set later: a method
	// that takes a connection without them returns an error that wraps ErrPool. clientFoundRows
	// is not seen if a wrapper of the driver hides it. Close leaves the pool open.
	DB *sql.DB
	// Orders maps the tables of orders; nil: the tables that Migrate creates.
	Orders *mapping.Mapping
	// OrdersAt returns the position of a key of Orders, as file:line:column, for the
	// problems that CheckMapping finds; nil: not known.
	OrdersAt func(path string) string
	// MaxOpenConns bounds the connection pool; 0 is DefaultMaxOpenConns.
	MaxOpenConns int
	// NeedConns is how many connections the caller must be able to use at once. If DB allows fewer,
	// the error wraps ErrPool. 0 is 2.
	NeedConns int

	limit time.Duration // of each statement with DB, for tests; 0: readTimeout
}

// ErrOwnTables says that an operation works only on the reference schema, and that
// topics.yaml maps orders to other tables.
var ErrOwnTables = errors.New("topics.yaml maps orders to the shop's own tables (key orders); this works only on the reference schema")

// Store is the database of orders. Its methods are safe for concurrent use.
type Store struct {
	gorm    *gorm.DB
	dialect Dialect
	name    string // what Database returns
	// mapped says that the orders are in the shop's own tables, which Migrate does not create.
	mapped      bool
	ordersAt    func(path string) string // Options.OrdersAt; may be nil
	maxIdle     int                      // idle connections of the pool; 0: Open did not create the pool
	answerLimit time.Duration            // the longest wait for one answer of the server; 0: the database is in this process
	q           *statements
	inDoubt     inDoubt
	lockedLines lockedKeys   // orders with lines that were recently locked
	lockedSKUs  lockedKeys   // SKUs that were recently locked
	lastClose   atomic.Int64 // when an order was closed last, in Unix nanoseconds
	// openUnbounded opens a pool without a read timeout, for long statements. It is nil on
	// SQLite, which has no such timeout, and with Options.DB, whose timeouts are unknown.
	openUnbounded func() (*sql.DB, error)
	retryFor      time.Duration // for tests, in place of the constant retryFor; 0: the constant
}

// Open prepares a Store on MySQL or MariaDB. It does not connect: the first method that
// needs the server does, and Ping reports whether the server answers. The error for an
// invalid DSN never contains the password.
func Open(o Options) (*Store, error) {
	if o.MaxOpenConns <= 0 {
		o.MaxOpenConns = DefaultMaxOpenConns
	}
	pool, cfg, err := o.open()
	if err != nil {
		return nil, err
	}
	if o.DB != nil {
		if o.MaxOpenConns, err = share(o.DB, o.MaxOpenConns, cmp.Or(o.NeedConns, minPoolConns)); err != nil {
			_ = pool.Close()
			return nil, err
		}
		pool.SetConnMaxIdleTime(poolIdleTime)
	}
	pool.SetMaxOpenConns(o.MaxOpenConns)
	pool.SetMaxIdleConns(o.MaxOpenConns)
	pool.SetConnMaxLifetime(connMaxLifetime)
	db, err := gorm.Open(mysql.New(mysql.Config{
		Conn: pool, DSNConfig: cfg,
		SkipInitializeWithVersion: true, // initializing would ask the server
	}), GormConfig())
	if err != nil {
		_ = pool.Close()
		return nil, fmt.Errorf("store: %w", err)
	}
	s, err := New(db, mysqlDialect, o.Orders)
	if err != nil {
		_ = pool.Close()
		return nil, err
	}
	s.ordersAt, s.maxIdle, s.answerLimit = o.OrdersAt, o.MaxOpenConns, cfg.ReadTimeout
	if o.DB == nil {
		s.name = cfg.Addr + "/" + cfg.DBName
		s.openUnbounded = func() (*sql.DB, error) { return openPool(withoutReadTimeout(cfg)) }
	}
	return s, nil
}

// open returns a pool of connections and the driver's configuration. For a pool of the program's
// own the configuration is unknown: the result has only the default read timeout.
func (o Options) open() (*sql.DB, *mysqldriver.Config, error) {
	if o.DB != nil {
		if o.DSN != "" {
			return nil, nil, errors.New("store: Options have a DSN and a DB: set one")
		}
		if o.TLS != nil {
			return nil, nil, errors.New("store: Options have a DB and TLS: open the DB with TLS instead")
		}
		c, err := newPoolConnector(o.DB, cmp.Or(o.limit, readTimeout))
		if err != nil {
			return nil, nil, err
		}
		return sql.OpenDB(utcConnector{c}), &mysqldriver.Config{ReadTimeout: readTimeout}, nil
	}
	cfg, err := parseDSN(o.DSN, o.TLS)
	if err != nil {
		return nil, nil, err
	}
	if cfg.DBName == "" {
		return nil, nil, errors.New("the database's DSN names no database: append /database to the server")
	}
	pool, err := openPool(cfg)
	return pool, cfg, err
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

// New returns a Store on an open database that is configured by GormConfig. The Store owns
// the database from here on. orders maps the tables of orders; nil: the tables that Migrate creates.
// The error names the problems of the mapping.
func New(db *gorm.DB, d Dialect, orders *mapping.Mapping) (*Store, error) {
	m := orders
	if m == nil {
		m = referenceMapping(d)
	}
	q, err := newStatements(m, d)
	return &Store{gorm: db, dialect: d, mapped: orders != nil, q: q}, err
}

// Close closes the connections.
func (s *Store) Close() error { return s.DB().Close() }

// Database returns the server and the database that the DSN names, as host:port/database, without
// user and password; "" if Options.DB is set, or on SQLite.
func (s *Store) Database() string { return s.name }

// DB returns the underlying connection pool.
func (s *Store) DB() *sql.DB {
	db, err := s.gorm.DB()
	if err != nil {
		panic("store: gorm without a database/sql pool: " + err.Error()) // New requires a pool
	}
	return db
}

// Ping reports whether the database answers. The error wraps orderclose.ErrUnavailable, and ErrZone if
// the session of a new connection is not in UTC.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.DB().PingContext(ctx); err != nil {
		return fmt.Errorf("ping the database: %w", unavailable(ctx, err))
	}
	return nil
}

// Now returns the database's clock, in UTC and whole milliseconds. This clock decides
// whether an order is due.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	now, err := s.now(s.gorm.WithContext(ctx))
	return now, s.failed(ctx, err, "read the database's clock")
}

// now reads the clock in the transaction tx.
func (s *Store) now(tx *gorm.DB) (now time.Time, err error) {
	err = tx.Raw("SELECT ?", s.dialect.now()).Row().Scan(timeInto(&now))
	return now, err
}

// Clock returns the clock of a database that has none of its own; nil: the database's clock
// decides.
func (s *Store) Clock() func() time.Time { return s.dialect.Clock }

// Dialect returns the kind of database, which decides how times are stored.
func (s *Store) Dialect() DialectName { return s.dialect.Name }
