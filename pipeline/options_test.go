package pipeline

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// ownStore is a Store that is no payment.Store.
type ownStore struct{}

func (ownStore) CloseOrders(context.Context, orderclose.Path, []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return nil, nil
}

// sweptStore can also be searched by a sweep.
type sweptStore struct{ ownStore }

func (sweptStore) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (sweptStore) Overdue(context.Context, time.Time, orderclose.Order, int) ([]orderclose.Order, error) {
	return nil, nil
}

func TestNew_NamesWhatIsMissing(t *testing.T) {
	cfg := config.Default()
	ask := payment.ProviderFunc(func(context.Context, []string) ([]payment.Answer, error) { return nil, nil })
	locked := config.Default()
	locked.Compensator.Lock.Kind = config.LockDatabase
	for name, c := range map[string]struct {
		o    Options
		role Role
		want string // in the error of New or Run
	}{
		"no configuration":           {Options{}, Relay, "TopicsFile or Config"},
		"an empty configuration":     {Options{Config: &Config{}}, Relay, "Load or Parse"},
		"a broker without a port":    {Options{Config: cfg, Servers: Servers{Brokers: []string{"localhost"}}}, Relay, "host:port"},
		"an instance with a space":   {Options{Config: cfg, Instance: "relay 0"}, Relay, "Options.Instance has other characters"},
		"a file that does not exist": {Options{TopicsFile: "none.yaml"}, Relay, "none.yaml"},
		"a bad Redis URL":            {Options{Config: cfg, Servers: Servers{RedisURL: "http://secret@x"}}, Relay, "redis://"},
		"TLS for a plain Redis": {Options{Config: cfg, Servers: Servers{RedisURL: "redis://:secret@x", RedisTLS: &tls.Config{}}}, Relay,
			"write rediss:// in the URL"},
		"TLS for a socket of Redis": {Options{Config: cfg, Servers: Servers{RedisURL: "unix:///secret", RedisTLS: &tls.Config{}}}, Relay,
			"write rediss:// in the URL"},
		"an unverified Redis":          {Options{Config: cfg, Servers: Servers{RedisURL: "rediss://:secret@x?skip_verify=true"}}, Relay, "accepts any server"},
		"an unverified database":       {Options{Config: cfg, Servers: Servers{DSN: "u:secret@tcp(h)/d?tls=skip-verify"}}, Relay, "accepts any server"},
		"two databases":                {Options{Config: cfg, Servers: Servers{DSN: "u@tcp(h)/d", MySQL: unreachable(t)}}, Relay, "set one"},
		"no Kafka":                     {Options{Config: cfg, Store: ownStore{}}, Closer, "Servers.Brokers"},
		"nothing to sweep":             {Options{Config: cfg, Store: ownStore{}, Servers: Servers{MySQL: unreachable(t)}}, Compensator, "methods Now and Overdue"},
		"no database to sweep":         {Options{Config: cfg, Store: ownStore{}}, Compensator, "Servers.DSN"},
		"a store that cannot be asked": {Options{Config: cfg, Store: sweptStore{}, Payment: ask}, Compensator, "PreviewClose and PayOrders"},
		"a metric of another program":  {Options{Config: cfg, Registerer: taken("orderclose_topic_drift")}, Relay, "orderclose_topic_drift"},
		"a lock in no database":        {Options{Config: locked, Store: sweptStore{}}, Compensator, "compensator.lock is database: there is no database"},
		"an unknown role":              {Options{Config: cfg}, "painter", "unknown role"},
		"a watch without a file":       {Options{Config: cfg, Watch: true}, Relay, "Options.Watch needs TopicsFile"},
	} {
		a, err := New(c.o)
		if err == nil {
			err = a.Run(t.Context(), c.role)
		}
		a.Close()
		expect.That(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "secret"), "%s: %v, want %q", name, err, c.want)
	}
}

// Nobody can find the orders of an own Store whose records are gone, unless it has the method Overdue.
func TestApp_AnOwnStoreIsSearchedOrSynced(t *testing.T) {
	for name, c := range map[string]struct {
		store   closer.Store
		text    string
		refused bool
	}{
		"not searched":              {ownStore{}, "", true},
		"not searched, never":       {ownStore{}, "sync: never", true},
		"not searched, synced":      {ownStore{}, "sync: always", false},
		"not searched, three":       {ownStore{}, "replication: 3", false},
		"not searched, and the URL": {ownStore{}, "closer: {http: {url: 'https://shop.example/close'}}", false},
		"searched":                  {sweptStore{}, "", false},
	} {
		cfg := must.Get(Parse("shop.yaml", []byte("buckets: [1m]\n"+c.text)))(t)
		a := must.Get(New(Options{Config: cfg, Store: c.store, Servers: Servers{Brokers: []string{"127.0.0.1:1"}}}))(t)
		_, err := a.closeMethodOnce()
		said := err != nil && strings.Contains(err.Error(), "Options.Store, a pipeline.ownStore, has no method Overdue: set sync: always in topics.yaml")
		expect.That(t, said == c.refused, "%s: %v", name, err)
		a.Close()
	}
}

// taken returns a registry in which another metric has the name.
func taken(name string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Another one."}))
	return r
}

// A store of the program's own is swept without a database.
func TestApp_SweepsAStoreOfItsOwn(t *testing.T) {
	a := must.Get(New(Options{Config: config.Default(), Store: sweptStore{}}))(t)
	defer a.Close()
	sweeps := must.Get(a.Compensator())(t)
	expect.Equal(t, must.Get(sweeps.Sweep(t.Context(), false))(t).Found, 0, "orders found")
}

func TestApp_RunsOnce(t *testing.T) {
	a := must.Get(New(Options{Config: config.Default(), Store: sweptStore{}}))(t)
	defer a.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Do(t, a.Run(ctx, Compensator))
	expect.Says(t, a.Run(ctx, Compensator), "Run was called before", "the second Run")
}

func TestApp_CheckDatabaseWithoutADatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(file, []byte("partitions: 1\n"), 0o600))
	a := must.Get(New(Options{TopicsFile: file}))(t)
	defer a.Close()
	expect.Is(t, a.CheckDatabase(t.Context()), errNoDatabase, "the check")
	must.Do(t, a.Host().ConfigBroken()) // without Kafka the file needs no buckets
}

// The database is probed only if orders are closed in it. Alerts see that by the series. Each database has a lock of its own.
func TestApp_ProbesTheDatabaseThatCloses(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	service := config.Default()
	service.Closer.Kind, service.Delays.Default = config.KindHTTP, time.Hour
	locks := map[string]bool{}
	for name, c := range map[string]struct {
		o    Options
		want int
	}{
		"the SQL store":      {Options{Config: config.Default(), Servers: Servers{MySQL: unreachable(t)}}, 1},
		"no database":        {Options{Config: config.Default()}, 0},
		"a store of its own": {Options{Config: config.Default(), Servers: Servers{MySQL: unreachable(t)}, Store: ownStore{}}, 0},
		"a service":          {Options{Config: service, Servers: Servers{MySQL: unreachable(t)}}, 0},
	} {
		r, o := testkit.NewMetrics(), compensator.Options{}
		c.o.Registerer = r
		a := must.Get(New(c.o))(t)
		for _, watch := range a.watches([]Role{Closer}) {
			if watch.wanted {
				watch.run(ended)
			}
		}
		expect.Equal(t, r.Series("database_write_failing_seconds"), c.want, "%s: series", name)
		must.Do(t, a.useLocks(&o))
		locks[o.LockKey] = true
		a.Close()
	}
	expect.Equal(t, len(locks), 2, "locks, with a database and without, whatever the delays")
}

func TestApp_TwoOfThemShareARegistry(t *testing.T) {
	r := prometheus.NewRegistry()
	for range 2 {
		a := must.Get(New(Options{Config: config.Default(), Store: sweptStore{}, Registerer: r}))(t)
		must.Get(a.Compensator())(t)
		a.Close()
	}
}

// unreachable configures a database that does not answer.
func unreachable(t *testing.T) *mysql.Config {
	t.Helper()
	return must.Get(mysql.ParseDSN("u@tcp(127.0.0.1:1)/d"))(t)
}

func TestRun_NeedsARole(t *testing.T) {
	a := must.Get(New(Options{Config: config.Default(), Store: sweptStore{}}))(t)
	defer a.Close()
	expect.Says(t, a.Run(t.Context()), "needs a role", "Run without a role")
}

// A program that embeds the pipeline sets its own secret for the service that closes orders.
func TestSecrets_OfTheServiceThatCloses(t *testing.T) {
	cfg := must.Get(Parse("shop.yaml", []byte("buckets: [1m]\ncloser: {http: {url: 'https://shop.internal/close'}}\n")))(t)
	for secret, want := range map[string]string{"": "Options.Secrets.HTTP", "short": "24 to 64 bytes", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": ""} {
		a, err := New(Options{Config: cfg, Secrets: Secrets{HTTP: strings.Fields(secret)}})
		must.Do(t, err)
		_, err = a.closeMethodOnce()
		if a.Close(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("secret %q: %v, want %q", secret, err, want)
		}
	}
}

func TestSettings_PrintNoSecret(t *testing.T) {
	for _, v := range []any{Secrets{HTTP: []string{"hunter2"}, Payment: []string{"hunter2"}}} {
		s := fmt.Sprintf("%v %+v %#v", v, v, v)
		expect.That(t, !strings.Contains(s, "hunter2"), "%v", s)
	}
}
