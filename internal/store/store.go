package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/mysqldsn"
	"github.com/orderclose/orderclose/internal/store/postgres"
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
	// user:password@tcp(host:port)/database?param=value. Or it names a PostgreSQL database, as
	// postgres://user:password@host:port/database?param=value, or in words: host=… dbname=…. Open overrides the settings that
	// correctness depends on (UTC, READ COMMITTED, exact ids). It keeps the timeouts.
	DSN string
	// TLS encrypts the connections to the server of DSN. An empty ServerName stands for its host.
	// Nil: the DSN's parameter tls says whether TLS is used. tls=skip-verify and tls=preferred are
	// errors.
	TLS *tls.Config
	// MySQL or Postgres is the configuration of the driver in place of DSN and TLS, such as with another way to dial, or a token as
	// password. The settings that correctness depends on are overridden, as those of a DSN. Make it by ParseDSN or ParseConfig of the driver.
	MySQL    *mysqldriver.Config
	Postgres *pgx.ConnConfig
	// Orders maps the tables of orders; nil: the tables that Migrate creates.
	Orders *mapping.Mapping
	// OrdersAt returns the position of a key of Orders, as file:line:column, for the
	// problems that CheckMapping finds; nil: not known.
	OrdersAt func(path string) string
	// Pipeline and Delays are the name of the pipeline in the table order_delays, which is the close topic, and its
	// delays, for a mapping with due times by rule; see UseDelays.
	Pipeline string
	Delays   orderclose.Delays
	// MaxOpenConns bounds the connection pool; 0 is DefaultMaxOpenConns.
	MaxOpenConns int
	// OpenDB makes the pool of the store's connections; nil is sql.OpenDB.
	OpenDB func(driver.Connector) *sql.DB

	limit time.Duration // of each statement on PostgreSQL, for tests; 0: the default
}

// Store is the database of orders. Its methods are safe for concurrent use. If the database failed, the error of a
// method wraps orderclose.ErrUnavailable.
type Store struct {
	gorm    *gorm.DB
	dialect Dialect
	name    string // what Database returns
	warning string // what Warning returns
	// mapped says that the orders are in the shop's own tables, which Migrate does not create.
	mapped      bool
	ordersAt    func(path string) string // Options.OrdersAt; may be nil
	maxIdle     int                      // idle connections of the pool; 0: Open did not create the pool
	answerLimit time.Duration            // the longest wait for one answer of the server; 0: the database is in this process
	q           *statements
	given       atomic.Pointer[map[string]int64] // as UseDelays got them, in microseconds by category
	stuck       sync.Map                         // until when nobody waits for a hotRow
	rooms       sync.Map                         // the migrations.Tables of rooms, by the name of the room
	hours       sync.Map                         // the hour of sweeps that this process wrote last, in Unix milliseconds, by the name of the pipeline
	lastClose   atomic.Int64                     // when an order was closed last, in Unix nanoseconds
	// crowdedUntil is until when closes lock the stock first, in Unix nanoseconds.
	crowdedUntil atomic.Int64
	// stockTurn has the time when the last transaction of manyOrders that moved stock has ended. It is empty while one moves stock.
	stockTurn chan time.Time
	waits     atomic.Pointer[bool] // the result of releaseWaits; nil: not asked yet
	watch     atomic.Bool          // a table that a close writes has a trigger
	// openUnbounded opens a pool without a read timeout, for long statements. It is nil on
	// SQLite, which has no such timeout.
	openUnbounded func() (*sql.DB, error)
	retryFor      time.Duration             // for tests, in place of the constant retryFor; 0: the constant
	readLimit     time.Duration             // the same of the constant readLimit
	seesAll       atomic.Pointer[time.Time] // when no row-level security hid orders; nil: not asked yet
	home          struct {
		sync.Mutex
		of string // where its receipts are, by dialect.homeSQL; "": not asked yet
	}
	quietSlow atomic.Pointer[time.Time] // when BeginTurn last took too long to look whether an order is due; nil: never
}

// Open prepares a Store on MySQL, MariaDB or PostgreSQL. It does not connect: the first method that
// needs the server does, and Ping reports whether the server answers. The error for an
// invalid DSN never contains the password.
func Open(o Options) (*Store, error) {
	if o.MaxOpenConns <= 0 {
		o.MaxOpenConns = DefaultMaxOpenConns
	}
	if o.OpenDB == nil {
		o.OpenDB = sql.OpenDB
	}
	s := &Store{ordersAt: o.OrdersAt, maxIdle: o.MaxOpenConns, stockTurn: newStockTurn()}
	pool, dialector, err := o.open(s)
	if err != nil {
		return nil, err
	}
	if err := s.openOn(pool, dialector, o); err != nil {
		_ = pool.Close()
		return nil, err
	}
	return s, nil
}

// openOn opens the Store on a pool of connections.
func (s *Store) openOn(pool *sql.DB, dialector gorm.Dialector, o Options) (err error) {
	pool.SetMaxOpenConns(s.maxIdle)
	pool.SetMaxIdleConns(s.maxIdle)
	pool.SetConnMaxLifetime(connMaxLifetime)
	if s.gorm, err = gorm.Open(dialector, GormConfig()); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return s.mapOrders(o.Orders, o.Pipeline, o.Delays)
}

// open opens a pool for the kind of database that Options name, and sets what the Store keeps of it.
func (o Options) open(s *Store) (*sql.DB, gorm.Dialector, error) {
	own := o.MySQL != nil || o.Postgres != nil
	switch {
	case own && (o.DSN != "" || o.TLS != nil), o.MySQL != nil && o.Postgres != nil:
		return nil, nil, errors.New("store: Options have two of DSN with TLS, MySQL and Postgres: set one")
	case o.Postgres != nil, !own && postgres.IsDSN(o.DSN):
		return o.openPostgres(s)
	}
	return o.openMySQL(s)
}

// openMySQL opens a MySQL or MariaDB server.
func (o Options) openMySQL(s *Store) (*sql.DB, gorm.Dialector, error) {
	var cfg *mysqldriver.Config
	var err error
	if o.MySQL != nil {
		cfg, err = mysqldsn.Own(o.MySQL)
	} else {
		cfg, err = mysqldsn.Parse(o.DSN, o.TLS)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := mysqldsn.Force(cfg); err != nil {
		return nil, nil, mysqldsn.Error(err)
	}
	if cfg.DBName == "" {
		return nil, nil, errors.New("the database's DSN names no database: append /database to the server")
	}
	pool, err := openPool(cfg, o.OpenDB)
	if err != nil {
		return nil, nil, err
	}
	s.dialect, s.answerLimit, s.name, s.warning = mysqlDialect, cfg.ReadTimeout, cfg.Addr+"/"+cfg.DBName, mysqldsn.Warning(cfg)
	s.openUnbounded = func() (*sql.DB, error) { return openPool(mysqldsn.WithoutReadTimeout(cfg), sql.OpenDB) }
	return pool, mysql.New(mysql.Config{
		Conn: pool, DSNConfig: cfg,
		SkipInitializeWithVersion: true, // initializing would ask the server
	}), nil
}

// openPostgres opens a PostgreSQL server.
func (o Options) openPostgres(s *Store) (*sql.DB, gorm.Dialector, error) {
	var cfg *postgres.Config
	var err error
	if o.Postgres != nil {
		cfg, err = postgres.Own(o.Postgres)
	} else {
		cfg, err = postgres.ParseDSN(o.DSN, o.TLS)
	}
	if err != nil {
		return nil, nil, err
	}
	cfg.Limit = cmp.Or(o.limit, cfg.Limit)
	cfg.HidesRows = o.Orders != nil && slices.Contains(o.Orders.Accept, mapping.RowSecurity)
	s.dialect, s.answerLimit, s.name, s.warning = postgresDialect, cfg.Limit, cfg.Name(), cfg.Warning()
	s.openUnbounded = func() (*sql.DB, error) {
		return sql.OpenDB(checkedConnector{cfg.Unbounded().Connector(), nil}), nil
	}
	pool := o.OpenDB(checkedConnector{cfg.Connector(), nil})
	return pool, gormpostgres.New(gormpostgres.Config{Conn: pool}), nil
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
// the database from here on. orders maps the tables of orders; nil: the tables that Migrate creates. pipeline is
// Options.Pipeline. The error names the problems of the mapping.
func New(db *gorm.DB, d Dialect, orders *mapping.Mapping, pipeline string) (*Store, error) {
	s := &Store{gorm: db, dialect: d, stockTurn: newStockTurn()}
	return s, s.mapOrders(orders, pipeline, orderclose.Delays{})
}

// mapOrders writes the statements on the tables of orders, with the values of Options.
func (s *Store) mapOrders(orders *mapping.Mapping, pipeline string, delays orderclose.Delays) (err error) {
	if s.mapped = orders != nil; !s.mapped {
		orders = referenceMapping(s.dialect)
	}
	s.q, err = newStatements(orders, s.dialect, pipeline)
	s.UseDelays(delays)
	return err
}

// Close closes the connections.
func (s *Store) Close() error { return s.DB().Close() }

// Database returns the server and the database that the DSN names, as host:port/database, without
// user and password; "" on SQLite.
func (s *Store) Database() string { return s.name }

// Warning returns what is unsafe in the DSN, and what to do, without user and password; "": nothing is.
func (s *Store) Warning() string { return s.warning }

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
