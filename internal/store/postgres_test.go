package store_test

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/propose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// In transaction mode PgBouncer gives each transaction another connection to the server: two serve all.
func TestPostgres_BehindAPooler(t *testing.T) {
	onPostgres(t, func(t *testing.T) {
		dsn := ownDatabase(t)
		for mode, want := range map[string]string{"transaction": "", "session": "", "statement": "transaction blocks not allowed"} {
			t.Run(mode, func(t *testing.T) {
				s := open(t, store.Options{DSN: pooled(t, dsn, mode)})
				if want != "" {
					err := s.Migrate(t.Context())
					expect.That(t, err != nil && strings.Contains(err.Error(), want), "error %v, want %q", err, want)
					return
				}
				behindAPooler(t, s)
			})
		}
	})
}

// pooled starts a PgBouncer before the server of a DSN, and returns the DSN of the pooler.
func pooled(t *testing.T, dsn, mode string) string {
	t.Helper()
	if os.Getenv("ORDERCLOSE_SERVERS") == "containers" {
		t.Skip("the pooler is native")
	}
	u := must.Get(url.Parse(dsn))(t)
	size := map[string]string{"session": "40"}[mode]
	p := must.Get(servers.New("pgbouncer", filepath.Join(t.TempDir(), "pgbouncer"), u.Port(), mode, "default_pool_size="+cmp.Or(size, "2")))(t)
	p.Env = append(p.Env, "ORDERCLOSE_SERVERS=native")
	if err := p.Start(t.Context()); err != nil {
		if os.Getenv("REQUIRE_REAL") != "1" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { must.Do(t, p.Stop(context.WithoutCancel(t.Context()))) })
	u.Host = p.Addr()
	return u.String()
}

// behindAPooler migrates in several processes at once, and closes orders in several transactions at once.
func behindAPooler(t *testing.T, s *store.Store) {
	must.Get(propose.Read(t.Context(), s, "", ""))(t) // leaves no connection of the server read-only
	var all errgroup.Group
	for range 4 {
		all.Go(func() error { return s.Migrate(t.Context()) })
	}
	must.Do(t, all.Wait())
	must.Do(t, scenario.OrdersOf(s).PutStock(t.Context(), "ink", 1000))
	const orders = 40
	for i := range orders {
		overdue(t, s, t.Name()+strconv.Itoa(i))
	}
	var closed atomic.Int64
	for range 4 {
		all.Go(func() error {
			for i := range orders {
				out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: t.Name() + strconv.Itoa(i)}})
				if err != nil {
					return err
				}
				if out[0].Verdict == orderclose.Closed {
					closed.Add(1)
				}
			}
			return nil
		})
	}
	must.Do(t, all.Wait())
	expect.That(t, closed.Load() == orders, "%d closes of %d orders", closed.Load(), orders)
	for range 20 { // whichever connection to the server a transaction gets
		tx := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
		var settings string
		must.Do(t, tx.QueryRowContext(t.Context(), "SELECT current_setting('TimeZone') || ' ' || current_setting('lock_timeout')").Scan(&settings))
		must.Do(t, tx.Rollback())
		must.That(t, settings == "UTC 1s", "a transaction has %s", settings)
	}
}

// A pause is not written if the encoding of the database lacks a character of its reason. The error says so.
func TestPostgres_AReasonInOtherCharactersThanTheDatabaseHas(t *testing.T) {
	onPostgres(t, func(t *testing.T) {
		dsn := must.Get(url.Parse(ownDatabase(t)))(t)
		admin, name := open(t, store.Options{DSN: dsn.String()}), strings.TrimPrefix(dsn.Path, "/")+"_latin1"
		exec(t, admin.DB(), "CREATE DATABASE "+name+" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
		t.Cleanup(func() { must.Get(admin.DB().Exec("DROP DATABASE " + name + " WITH (FORCE)"))(t) })
		dsn.Path = "/" + name
		s := open(t, store.Options{DSN: dsn.String()})
		must.Do(t, s.Migrate(t.Context()))
		_, err := s.Pause(t.Context(), "", time.Hour, "支付宝故障", false)
		expect.Says(t, err, "the encoding of the database lacks a character of the reason", "a pause")
		must.Get(s.Pause(t.Context(), "", time.Hour, "Alipay has an outage", false))(t)
	})
}
