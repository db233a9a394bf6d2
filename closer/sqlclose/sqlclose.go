// Package sqlclose is the Store that closes orders in the shop's MySQL, MariaDB or PostgreSQL database, each
// in one transaction with its stock. Package pipeline closes orders in the same way by default. A
// program makes a Store to close an order when it is read, or to pass it to closer.New.
//
//	orders, err := sqlclose.New(sqlclose.Options{DSN: dsn})
//	…
//	out, err := orders.CloseOrders(ctx, orderclose.PathTouch, []orderclose.CloseRequest{{OrderID: id}})
//	if err == nil && out[0].Verdict == orderclose.Closed { … show the order as closed }
//
// A payment is recorded with RecordPayment, in the transaction of the provider's callback: the order is
// paid, or the money came too late and is on record.
//
// If a payment provider is asked before a close, or cancels payments, pass the Store to payment.New, and
// call CloseOrders of its CheckedStore instead: it cancels the payments on read too.
//
// The tables are the reference schema, which CreateTables creates, or the shop's own, which
// topics.yaml maps (key orders).
package sqlclose

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
)

// Options configure a Store. DSN, MySQL or Postgres is required.
type Options struct {
	// DSN names the database in the format of go-sql-driver:
	// user:password@tcp(host:port)/database. Or it names a database of PostgreSQL:
	// postgres://user:password@host:port/database?sslmode=verify-full.
	DSN string
	// TLS encrypts the connections to the server of DSN, as its parameter tls=true does, and says
	// which CA to trust.
	TLS *tls.Config
	// MySQL or Postgres is the configuration of the driver in place of DSN and TLS: one that the driver's ParseDSN or ParseConfig has
	// made, and then changed, such as by another way to dial, or a token as password (BeforeConnect). The Store overrides what
	// correctness depends on: times, charset, the settings of a session.
	MySQL    *mysql.Config
	Postgres *pgx.ConnConfig
	// TopicsFile is the path of a topics.yaml that maps orders to the shop's own tables (key
	// orders). "": the reference schema.
	TopicsFile string
	MaxConns   int // limit of connections; default 16
	// Registerer gets the metric of RecordPayment, orderclose_payment_callbacks_total by result. Stores of one process may
	// share it. Default: no metrics.
	Registerer prometheus.Registerer
}

// Store closes orders in the database. It is safe for concurrent use. Create it with New, and
// call Close in the end.
type Store struct {
	s         *store.Store
	callbacks *prometheus.CounterVec
}

// New returns a Store, or an error that names what is wrong in the options or in the file. It
// does not connect; Ping does.
func New(o Options) (*Store, error) {
	if o.DSN == "" && o.MySQL == nil && o.Postgres == nil {
		return nil, errors.New("sqlclose: Options need DSN, MySQL or Postgres")
	}
	callbacks, err := newCallbacks(o.Registerer)
	if err != nil {
		return nil, err
	}
	opts := store.Options{DSN: o.DSN, TLS: o.TLS, MySQL: o.MySQL, Postgres: o.Postgres, MaxOpenConns: o.MaxConns}
	if o.TopicsFile != "" {
		cfg, err := config.Load(o.TopicsFile, config.WithoutKafka)
		if err != nil {
			return nil, err
		}
		opts.Orders, opts.OrdersAt, opts.Pipeline, opts.Delays = cfg.Orders, cfg.OrdersAt.At, cfg.Topics.Close, cfg.Delays
	}
	s, err := store.Open(opts)
	if err != nil {
		return nil, err
	}
	return &Store{s, callbacks}, nil
}

// Classify wraps an error of go-sql-driver/mysql, pgx or database/sql. It is for a shop's own transaction, such as a checkout, and for a closer.Store of
// the program's own, whose CloseOrders returns the result after it has rolled back:
//
//   - orderclose.ErrContended: another transaction won a deadlock, holds a row, or has changed it. Roll back and try the
//     transaction again a few times before you return it
//   - orderclose.ErrUnavailable: the database does not work, or the context ended. It also wraps
//     orderclose.ErrNoOrderAtFault if no order can be the cause, such as on a read-only server
//   - any other error is returned as it is: an order may have caused it, such as a duplicate key
//
// nil stays nil, and an error that wraps one of these already stays as it is.
func Classify(err error) error { return store.Classify(err) }

// CloseOrders closes the orders that are unpaid and due by the database's clock, and returns
// their stock, in one transaction. It returns one outcome for each request, in the order of the
// requests. If several requests name one order, the first gets the verdict. The others get
// AlreadyClosed if the first got Closed. An order whose row another transaction locks is Contended
// at once. So is an order with a line or a SKU that is locked for long, if the database can name it.
//
// While an operator has paused closing, the error wraps orderclose.ErrPaused; if only its category is
// paused, an order is Paused. After an error no order was closed, with one exception: the answer to the commit was lost.
// Then call CloseOrders again for the same orders: an order that the commit closed gets AlreadyClosed. The error wraps
// orderclose.ErrUnavailable if the database failed, and orderclose.ErrContended if a row is locked
// and the database cannot name it. After ErrContended, and after any other error, the batch can
// succeed without the order at fault.
func (s *Store) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return s.s.CloseOrders(ctx, path, requests)
}

// PreviewClose returns the outcomes that CloseOrders would have now, and changes nothing. Pauses
// count, as in CloseOrders; with an empty path no pause counts.
func (s *Store) PreviewClose(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return s.s.PreviewClose(ctx, path, requests)
}

// PayOrders marks unpaid orders as paid, whether they are due or not, and writes the event
// orderclose.OrderPaid of each order that it marks. The verdict is AlreadyPaid
// for each order that is paid now. An order that was closed or cancelled before gets the verdict AlreadyClosed,
// a row in late_payments and the event orderclose.OrderPaidLate.
func (s *Store) PayOrders(ctx context.Context, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return s.s.PayOrders(ctx, requests)
}

// Payment is a payment of which the provider told the shop. OrderID and ID are required.
type Payment struct {
	OrderID string // the shop's id of the order
	// ID is the provider's id of the payment, at most 255 bytes; if the orders have a column payment_id
	// orderclose.MaxIDBytes.
	ID       string
	Amount   int64  // in minor units of Currency, such as cents
	Currency string // ISO 4217, such as EUR; "": the amount is unknown, and Amount is 0
}

// Recorded is what RecordPayment did with a payment.
type Recorded string

// The results of RecordPayment.
const (
	// Paid: the order was unpaid, due or not, and is paid now.
	Paid Recorded = Recorded(callback.RecordedPaid)
	// AlreadyPaid: the order was paid before by this payment, also if the shop has refunded or cancelled the order since. Or
	// nobody knows by which payment: then the pipeline may have
	// marked it as paid, with the event orderclose.OrderPaid. If a mapping has no
	// payment_id, every later payment of a paid order gets this answer.
	AlreadyPaid Recorded = Recorded(callback.RecordedAlready)
	// PaidLate: the order was closed or cancelled before, or another payment paid it. The money is on record in
	// late_payments. The order stays as it is.
	PaidLate Recorded = Recorded(callback.RecordedLate)
)

var (
	// ErrNoOrder says that a payment names an order that has neither a row nor a receipt.
	ErrNoOrder = callback.ErrNoOrder
	// ErrUnnamedStatus says that orders.status of topics.yaml does not name the status of a payment's order, as paid or as
	// closed; the error has the status.
	ErrUnnamedStatus = callback.ErrUnnamedStatus
	// ErrBadPayment says that a field of a Payment cannot be recorded; the error names it.
	ErrBadPayment = store.ErrBadPayment
)

// RecordPayment records a successful payment in tx, the transaction of the shop's callback, which is begun at READ COMMITTED. It marks the
// order as paid if it is unpaid. If the payment came too late, it writes a row of late_payments and
// the event order.paid_late. The shop commits, and then answers the provider; all results are a success.
// A repeated call changes nothing: it returns AlreadyPaid after Paid, and PaidLate again after PaidLate.
//
// tx is orderclose.SQL(tx) of a *sql.Tx or of gorm's ConnPool, or pgxtx.New(tx) of a pgx.Tx. A *sql.DB and a *sql.Conn are refused,
// because they commit each statement by itself. tx is on the database of the Store, with any settings of its connection; on PostgreSQL
// its driver is pgx. At REPEATABLE READ, the default of MySQL and MariaDB, two callbacks may be a deadlock, closes wait for the gaps that
// it locks, and MariaDB 11.6 and newer refuse what others have changed since the transaction read first.
// The order's row is locked first, as in a close: call RecordPayment before other statements that lock rows of other orders or of the
// stock. After an error, roll back: it wraps ErrNoOrder, ErrUnnamedStatus, ErrBadPayment, orderclose.ErrContended (run the transaction
// again), or orderclose.ErrUnavailable.
func (s *Store) RecordPayment(ctx context.Context, tx orderclose.Tx, p Payment) (Recorded, error) {
	r, err := callback.RecordPayment(ctx, s.s.Payments, tx, store.LatePayment{OrderID: p.OrderID, PaymentID: p.ID, Amount: p.Amount, Currency: p.Currency})
	err = store.Classify(err)
	s.callbacks.WithLabelValues(callbackResult(Recorded(r), err)).Inc()
	return Recorded(r), err
}

// Overdue returns up to limit unpaid orders that are due at or before cutoff, ordered by due time
// and id, after the given order. The zero Order starts at the beginning.
func (s *Store) Overdue(ctx context.Context, cutoff time.Time, after orderclose.Order, limit int) ([]orderclose.Order, error) {
	return s.s.Overdue(ctx, cutoff, after, limit)
}

// Now returns the database's clock, in UTC. It decides whether an order is due.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.s.Now(ctx) }

// Probe reports whether the database works. The closer calls it when a close fails, to
// distinguish a fault of the database from a fault of an order.
func (s *Store) Probe(ctx context.Context) error { return s.s.Probe(ctx) }

// MaxBatch returns how many orders one call takes now, for the closer; 0: any number. It is small while shops compete for the stock.
func (s *Store) MaxBatch() int { return s.s.MaxBatch() }

// Ping reports whether the database answers and its connections fit. The error wraps
// orderclose.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error { return s.s.Ping(ctx) }

// CreateTables creates the tables, or brings them up to date: receipts and outboxes, and
// the reference tables of orders unless TopicsFile maps orders to tables of the shop. Several
// processes may call it at once.
func (s *Store) CreateTables(ctx context.Context) error { return s.s.Migrate(ctx) }

// Close closes the connections of the Store.
func (s *Store) Close() error { return s.s.Close() }
