package pipeline

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"

	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/reload"
	"github.com/orderclose/orderclose/internal/retry"
)

// Config is the content of topics.yaml. Load and Parse make it. Programs need these fields:
//
//	Delays        orderclose.Delays  // for producer.Options, as the next three
//	MaxDelay      time.Duration
//	Buckets       orderclose.Buckets
//	Topics.Close  string
//	Topics.Events string             // for a reader of events of its own
//
// The other fields are the other keys of the file.
type Config = config.Config

// Secrets sign the requests to the services of the shop that topics.yaml names. Its fields are lists: HTTP is required by
// closer.http.url, Payment by closer.payment.url, and Webhook by the role Webhook. Each secret is whsec_ and 24 to 64 bytes in
// base64. A request has a signature by each secret of its list, so that a secret can be replaced. Printing or logging Secrets
// hides them.
type Secrets = environ.Secrets

// Change is a setting of topics.yaml that a Reload has changed. Key is as in the file, such as buckets.10s; From and To are the values, "" if the key
// was added or removed. If Live is true, the change takes effect now; otherwise when the program starts again. String describes it in one line.
type Change = reload.Change

// Load reads a topics.yaml. The error names each mistake with its line.
func Load(file string) (*Config, error) { return config.Load(file) }

// Parse is like Load for the content of a topics.yaml. file is its name in errors.
func Parse(file string, data []byte) (*Config, error) { return config.Parse(file, data) }

// Options configure an App. TopicsFile or Config is required. The roles need:
//
//   - Kafka: every role except Compensator and Console; Sweeper works only without it
//   - the database: the outbox; the compensator, unless Store is a compensator.Store; the closer,
//     unless Store or a service (topics.yaml: closer.http.url) closes orders
//   - Secrets.Webhook: the role Webhook, which needs the database too
//   - Console: the role Console
type Options struct {
	// TopicsFile is the path of topics.yaml, which App.Reload reads again. Config is its content,
	// if the program read it before, or made it by Parse; New then does not read the file.
	TopicsFile string
	Config     *Config
	// Watch reads TopicsFile again when it changes, and for each signal of Hangup, such as SIGHUP. A
	// file with a mistake changes nothing. Watch needs TopicsFile.
	Watch  bool
	Hangup <-chan os.Signal

	// New connects to Servers, and Close closes the clients. Connections are clients that exist already, such as those of
	// pipelinetest: New then does not connect, and Close does not close them.
	Servers     Servers
	Connections Connections

	// SweepEvery is how often the role Sweeper closes the orders that are due, from 1 s on; default DefaultSweepEvery.
	SweepEvery time.Duration
	// SweepsAlone says that no pipeline has to close an order before App.Compensator does: compensator.Grace does not apply.
	SweepsAlone bool

	// Store closes orders instead of the SQL store. Its "orders" may be anything that has a due time. Store may implement more:
	//
	//   - compensator.Store: sweeps search it instead of the database. Otherwise topics.yaml needs sync: always while replication is 1
	//   - payment.Store: required if a payment provider is asked
	//   - Probe(ctx) error and MaxBatch() int: see closer.Store
	Store closer.Store
	// Payment is asked before an order is closed: the customer may have paid meanwhile. A payment.Canceler cancels the order's payments before the
	// close. Payment replaces closer.payment of topics.yaml. Store must then be a payment.Store; the SQL store is one.
	Payment payment.Provider

	// OnHang is called with the reason when a loop hangs and cannot be stopped. Nobody serves the partition of the loop until the process exits. The
	// process should exit and be restarted by its supervisor; the next process repeats the work that was not committed. OnHang may be called from
	// several goroutines. Default: log the reason and call os.Exit(1).
	OnHang func(why string)

	Secrets  Secrets           // sign the requests to the services in topics.yaml
	Services http.RoundTripper // the transport to these services; default: the network

	// Console makes the role Console: pass webconsole.New(…). Run calls it before any role starts, and
	// then run, which must return soon after ctx ends. An error of either ends Run.
	Console func(Host) (run func(ctx context.Context) error, err error)
	// Listen is the host:port at which the program serves App.Handler, if it does. Its port is part
	// of the client id in the consumer groups, so that orderclose status names the process.
	Listen string
	// Instance makes the memberships in consumer groups static: a process that was killed, and is started again with the same Instance within
	// kafka.session_timeout of topics.yaml, 30 s, gets its partitions back at once. Each process that runs needs an Instance of its own, such as the
	// name of a pod, or host and unit; see ErrFenced. It has letters, digits, ".", "_" and "-", at most 100. Default: memberships are not static.
	Instance string

	// Registerer gets the metrics of the roles. If it is also a prometheus.Gatherer, as a registry is, App.Handler serves /metrics from it. Otherwise
	// App.Handler has no /metrics. Default: a new registry, which also has the metrics of the Go runtime and of the process. A program that passes a
	// Registerer has registered these itself, if it wants them.
	Registerer prometheus.Registerer
	// TracerProvider makes the spans of traced orders, see docs/tracing.md. Default: no spans.
	TracerProvider trace.TracerProvider
	Now            func() time.Time // the clock of this machine; default time.Now
	Logger         *slog.Logger     // default: warnings and errors, to slog.Default
}

var (
	errNoBrokers  = fmt.Errorf("there is no Kafka cluster: set %s, or Servers.Brokers", environ.EnvBrokers)
	errNoDatabase = fmt.Errorf("there is no database: set %s, or Servers.DSN; or set Options.Store to close something else", environ.EnvDSN)
)

// complete reads TopicsFile and sets the defaults.
func (o *Options) complete() (err error) {
	if o.Config == nil && o.TopicsFile == "" {
		return errors.New("pipeline: Options need TopicsFile or Config")
	}
	if o.Watch && o.TopicsFile == "" {
		return errors.New("pipeline: Options.Watch needs TopicsFile")
	}
	if o.Config == nil {
		if o.Config, err = config.Load(o.TopicsFile, o.readOptions()...); err != nil {
			return err
		}
	}
	if !environ.ValidInstance(o.Instance) {
		return errors.New("pipeline: Options.Instance has other characters than letters, digits, '.', '_' and '-', or more than 100")
	}
	if len(o.Config.Buckets) == 0 {
		return errors.New("pipeline: Options.Config is empty: make it with Load or Parse")
	}
	if o.Registerer == nil { // go_…: of the Go runtime; process_…: memory, CPU time, open files
		r := prometheus.NewRegistry()
		r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		o.Registerer = r
	}
	o.Logger = retry.LimitLogs(o.Logger)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnHang == nil {
		o.OnHang = func(why string) {
			time.AfterFunc(time.Second, func() { os.Exit(1) }) // also if nobody reads the log
			o.Logger.Error("exiting because a loop hangs", "reason", why)
			os.Exit(1)
		}
	}
	return nil
}

// readOptions says how an App reads topics.yaml. Without Kafka, the file need not list the buckets.
func (o *Options) readOptions() []config.Option {
	if len(o.Servers.Brokers) == 0 && o.Connections.Kafka == nil {
		return []config.Option{config.WithoutKafka}
	}
	return nil
}

// SASL says who this process is at Kafka. Package producer has the mechanisms, such as producer.SASLScramSHA512. Its fields:
//
//	Mechanism  string            // one of the mechanisms
//	User       string            // not needed for SASLOAuthBearer
//	Password   string            // none with SASLOAuthBearer
//	Token      func(context.Context) (token string, ends time.Time, err error) // for SASLOAuthBearer
//	Extensions map[string]string // for SASLOAuthBearer: what the broker wants beside the token
type SASL = kafka.SASL

// Servers name the servers of an App. A server that is not named is not used.
type Servers struct {
	Brokers []string    // host:port of brokers of the Kafka cluster
	TLS     *tls.Config // encrypts the connections to Kafka; a certificate in it authenticates the client
	SASL    *SASL       // authenticates at Kafka by user and password, or by a token
	// DSN names the database: MySQL or MariaDB in the format of go-sql-driver, user:password@tcp(host:port)/database, or PostgreSQL as
	// postgres://user:password@host:port/database?sslmode=verify-full. DatabaseTLS encrypts the connections to it, as the parameter tls=true does,
	// and says which CA to trust. MySQL or Postgres is the configuration of the driver in place of both; see package sqlclose. MaxConns bounds the
	// connections; default 16.
	DSN         string
	DatabaseTLS *tls.Config
	MySQL       *mysql.Config
	Postgres    *pgx.ConnConfig
	MaxConns    int
	// RedisURL is the server of the lock for sweeps: redis://user:password@host:port/db, or rediss:// with TLS. docs/security.md has the URLs of
	// several servers. Without a URL the lock is a row of the database. If compensator.lock is database, the URL is not used. RedisTLS says which CA
	// to trust, and needs a URL with rediss.
	RedisURL string
	RedisTLS *tls.Config
}

// FromEnvironment returns Options with the servers, secrets and services that the environment variables of the command orderclose name
// (ORDERCLOSE_KAFKA_BROKERS, …). The error names each variable with an invalid value, and shows no value.
func FromEnvironment() (Options, error) {
	s, err := environ.Read(os.LookupEnv)
	if err != nil {
		return Options{}, err
	}
	servers := Servers{
		Brokers: s.Brokers, TLS: s.Kafka.TLS, SASL: s.Kafka.SASL,
		DSN: s.DSN, DatabaseTLS: s.DatabaseTLS, RedisURL: s.RedisURL, RedisTLS: s.RedisTLS,
	}
	return Options{Servers: servers, Instance: s.Instance, Secrets: s.Secrets}, nil
}

// Connections are clients of the servers. A server that is not named has a nil client. New makes them of Options.Servers, App.Host returns
// them, and package pipelinetest makes those of its servers.
type Connections = clients.Clients

func connect(s Servers, cfg *Config, logger *slog.Logger) (Connections, error) {
	return clients.Connect(environ.Servers{
		Brokers: s.Brokers, Kafka: kafka.Security{TLS: s.TLS, SASL: s.SASL},
		DSN: s.DSN, DatabaseTLS: s.DatabaseTLS, RedisURL: s.RedisURL, RedisTLS: s.RedisTLS,
	}, clients.Database{MySQL: s.MySQL, Postgres: s.Postgres, MaxConns: s.MaxConns}, cfg, logger)
}

// LogRedis makes the Redis clients of this process write their own lines, such as that they cannot connect, to logger, at the level WARN and limited
// as all warnings. All clients of go-redis in a process share one logger, also those of the program's own, and write to stderr by default. So an App
// does not change it: the program calls LogRedis once, before New, if it wants their lines in its log.
func LogRedis(logger *slog.Logger) { clients.LogRedis(logger) }
