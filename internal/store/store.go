package store

import (
	"cmp"
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

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/migrations"
	"github.com/orderclose/orderclose/internal/store/money"
	"github.com/orderclose/orderclose/internal/store/mysqldsn"
	"github.com/orderclose/orderclose/internal/store/postgres"
	"github.com/orderclose/orderclose/internal/store/read"
	"github.com/orderclose/orderclose/internal/store/schema"
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
	// correctness depends on (UTC, READ COMMITTED, exact ids). It keeps the timeouts; readTimeout is 15 s at most.
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
	*db.Handle
	*schema.Checker
	*closetx.Closer
	*money.Payments
	*read.Reader
	hours     sync.Map                  // the hour of sweeps that this process wrote last, in Unix milliseconds, by the name of the pipeline
	seesAll   atomic.Pointer[time.Time] // when no row-level security hid orders; nil: not asked yet
	quietSlow atomic.Pointer[time.Time] // when BeginTurn last took too long to look whether an order is due; nil: never
}

// newStore returns a Store on a database.
func newStore(h *db.Handle) *Store {
	checker := &schema.Checker{Handle: h}
	closer := closetx.NewCloser(checker)
	return &Store{Handle: h, Checker: checker, Closer: closer, Payments: &money.Payments{Closer: closer}, Reader: &read.Reader{Closer: closer}}
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
	h := &db.Handle{OrdersAt: o.OrdersAt, MaxIdle: o.MaxOpenConns, Migrations: migrations.Files}
	pool, dialector, err := o.open(h)
	if err != nil {
		return nil, err
	}
	if err := o.openOn(h, pool, dialector); err != nil {
		_ = pool.Close()
		return nil, err
	}
	return newStore(h), nil
}

// openOn opens the Handle on a pool of connections.
func (o Options) openOn(h *db.Handle, pool *sql.DB, dialector gorm.Dialector) (err error) {
	pool.SetMaxOpenConns(h.MaxIdle)
	pool.SetMaxIdleConns(h.MaxIdle)
	pool.SetConnMaxLifetime(connMaxLifetime)
	if h.Gorm, err = gorm.Open(dialector, db.GormConfig()); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return h.MapOrders(o.Orders, o.Pipeline, o.Delays)
}

// open opens a pool for the kind of database that Options name, and sets what the Handle keeps of it.
func (o Options) open(s *db.Handle) (*sql.DB, gorm.Dialector, error) {
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
func (o Options) openMySQL(s *db.Handle) (*sql.DB, gorm.Dialector, error) {
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
	pool, err := db.OpenPool(cfg, o.OpenDB)
	if err != nil {
		return nil, nil, err
	}
	s.Dialect, s.AnswerLimit, s.Address, s.DSNWarning = db.MySQLDialect, cfg.ReadTimeout, cfg.Addr+"/"+cfg.DBName, mysqldsn.Warning(cfg)
	s.OpenUnbounded = func() (*sql.DB, error) { return db.OpenPool(mysqldsn.WithoutReadTimeout(cfg), sql.OpenDB) }
	return pool, mysql.New(mysql.Config{
		Conn: pool, DSNConfig: cfg,
		SkipInitializeWithVersion: true, // initializing would ask the server
	}), nil
}

// openPostgres opens a PostgreSQL server.
func (o Options) openPostgres(s *db.Handle) (*sql.DB, gorm.Dialector, error) {
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
	s.Dialect, s.AnswerLimit, s.Address, s.DSNWarning = db.PostgresDialect, cfg.Limit, cfg.Name(), cfg.Warning()
	s.OpenUnbounded = func() (*sql.DB, error) {
		return sql.OpenDB(db.CheckedConnector{Connector: cfg.Unbounded().Connector()}), nil
	}
	pool := o.OpenDB(db.CheckedConnector{Connector: cfg.Connector()})
	return pool, gormpostgres.New(gormpostgres.Config{Conn: pool}), nil
}

// New returns a Store on an open database that is configured by GormConfig. The Store owns
// the database from here on. orders maps the tables of orders; nil: the tables that Migrate creates. pipeline is
// Options.Pipeline. The error names the problems of the mapping.
func New(on *gorm.DB, d db.Dialect, orders *mapping.Mapping, pipeline string) (*Store, error) {
	h := &db.Handle{Gorm: on, Dialect: d, Migrations: migrations.Files}
	err := h.MapOrders(orders, pipeline, orderclose.Delays{})
	return newStore(h), err
}

// Dialect returns the kind of database, which decides how times are stored.
func (s *Store) Dialect() db.DialectName { return s.Handle.Dialect.Name }
