package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
	"github.com/orderclose/orderclose/internal/wire"
)

// lockedFor is the promise: so long after a host has disappeared, its locks are gone.
const lockedFor = 30 * time.Second

// act is a transaction of a program, for an order or for several whose ids begin with its own.
type act struct {
	name   string
	orders int
	shared bool // all locks are the same, so that only one host can disappear with them
	do     func(ctx context.Context, s *store.Store, ids []string) error
}

var acts = []act{
	{name: "close", orders: 1, do: closeAll},
	{name: "batch", orders: 120, do: closeAll}, // its statements are longer than a piece
	{name: "asked", orders: 1, do: func(ctx context.Context, s *store.Store, ids []string) error {
		_, err := s.PayOrders(ctx, []orderclose.CloseRequest{{OrderID: ids[0]}})
		return err
	}},
	{name: "callback", orders: 1, do: func(ctx context.Context, s *store.Store, ids []string) error {
		tx, err := s.DB().BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err = scenario.RecordOf(s)(ctx, orderclose.SQL(tx), sqlclose.Payment{OrderID: ids[0], ID: "p" + ids[0]}); err != nil {
			return err
		}
		return tx.Commit()
	}},
	{name: "late", orders: 1, do: func(ctx context.Context, s *store.Store, ids []string) error {
		if err := closeAll(ctx, s, ids); err != nil {
			return err
		}
		_, err := s.RecordLate(ctx, []store.LatePayment{{OrderID: ids[0], PaymentID: "p" + ids[0], Source: "test"}})
		return err
	}},
	{name: "outbox", do: func(ctx context.Context, s *store.Store, _ []string) error {
		for n := 1; n > 0; {
			var err error
			n, err = s.Dispatch(ctx, wire.ScheduleOutbox, 0, 1, func(_ context.Context, rows []wire.OutboxRow) []int64 { return []int64{rows[0].ID} })
			if err != nil {
				return err
			}
		}
		var left int
		if err := s.DB().QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_schedules").Scan(&left); err != nil || left > 0 {
			return fmt.Errorf("%d rows are left: %w", left, err)
		}
		return nil
	}},
	{name: "pause", shared: true, do: func(ctx context.Context, s *store.Store, _ []string) error {
		_, err := s.Pause(ctx, "none", time.Second, "", true)
		return err
	}},
	{name: "trial", shared: true, do: func(ctx context.Context, s *store.Store, _ []string) error {
		_, err := s.TryClose(ctx)
		return err
	}},
	{name: "write probe", shared: true, do: func(ctx context.Context, s *store.Store, _ []string) error { return s.Writable(ctx) }},
}

func closeAll(ctx context.Context, s *store.Store, ids []string) error {
	var reqs []orderclose.CloseRequest
	for _, id := range ids {
		reqs = append(reqs, orderclose.CloseRequest{OrderID: id})
	}
	out, err := s.CloseOrders(ctx, orderclose.PathPipeline, reqs)
	for _, o := range out {
		if err == nil && o.Verdict != orderclose.Closed && o.Verdict != orderclose.AlreadyClosed {
			err = fmt.Errorf("%s: %s, %w", o.OrderID, o.Verdict, o.Err)
		}
	}
	return err
}

// A host disappears before a statement of a transaction: the database hears nothing more of it, and no connection is closed. All hosts of a
// test disappear at once, at each statement of each transaction. Within lockedFor other programs can do the same, and
// the shop can change the orders and their stock. When the hosts are back, each order was closed or paid once.
func TestSilentHost_ItsLocksEndSoon(t *testing.T) { eachDatabase(t, silentHosts) }

func silentHosts(t *testing.T) {
	dsn := migratedDatabase(t)
	s := openMigrated(t, store.Options{DSN: dsn})
	var all []*silent
	for _, a := range acts {
		dry := newSilent(t, s, a, dsn, 0)
		before := dry.proxy.Pieces()
		must.Do(t, a.do(t.Context(), dry.store, dry.ids))
		pieces := dry.proxy.Pieces() - before
		t.Logf("%s: %d pieces", a.name, pieces)
		from, step := 1, 1
		if a.shared || !ring.All() {
			from = pieces - 1 // most is locked then
		}
		if !a.shared && !ring.All() {
			step, from = max(pieces/3, 1), 2
		}
		for n := from; n <= pieces; n += step {
			all = append(all, newSilent(t, s, a, dsn, n))
		}
	}
	const most = 40 // connections of a server are few
	for begin := 0; begin < len(all); begin += most {
		silence(t, s, all[begin:min(begin+most, len(all))])
	}
}

// silence lets hosts disappear, and looks for what they have locked.
func silence(t *testing.T, s *store.Store, hosts []*silent) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	for _, h := range hosts {
		running.Go(func() { h.err = h.act.do(t.Context(), h.store, h.ids); close(h.ended) })
	}
	go func() { running.Wait(); close(ended) }()
	for _, h := range hosts {
		select {
		case <-h.gone:
		case <-h.ended: // its statements came in fewer pieces
		}
	}
	within, cancel := context.WithTimeout(t.Context(), lockedFor)
	defer cancel()
	for _, h := range hosts {
		for what, do := range map[string]func() error{
			"the same": func() error { return h.act.do(within, s, h.ids) },
			"a checkout": func() error {
				_, err := s.DB().ExecContext(within, "UPDATE stock SET available = available WHERE sku_id = ?", h.name)
				return err
			},
			"a payment": func() error {
				_, err := s.DB().ExecContext(within, "UPDATE orders SET version = version WHERE id IN ('"+strings.Join(h.ids, "', '")+"')")
				return err
			},
		} {
			storetest.Await(t, what+" after the host of "+h.name+" disappeared", func() (string, bool) {
				err := do()
				return fmt.Sprint(err), err == nil || within.Err() != nil
			})
		}
	}
	must.That(t, within.Err() == nil, "what lost hosts had locked was not free within %v", lockedFor)
	for _, h := range hosts {
		h.proxy.Heal()
	}
	<-ended
	for _, h := range hosts {
		h.check(t, s)
	}
}

// silent is a program whose host disappears.
type silent struct {
	act   act
	name  string
	ids   []string
	proxy *testkit.Proxy
	store *store.Store
	gone  <-chan struct{} // is closed when the host disappears
	ended chan struct{}   // is closed when its transaction has ended
	err   error
}

// newSilent creates the orders of an act, and opens a store whose host disappears at the n-th piece; 0: never.
func newSilent(t *testing.T, s *store.Store, a act, dsn string, n int) *silent {
	t.Helper()
	h := &silent{act: a, name: fmt.Sprintf("%s-%d", strings.ReplaceAll(a.name, " ", "-"), n), ended: make(chan struct{})}
	must.Do(t, scenario.OrdersOf(s).PutStock(t.Context(), h.name, 1000))
	for i := range a.orders {
		h.ids = append(h.ids, fmt.Sprintf("%s-%d", h.name, i))
		overdueWith(t, s, h.ids[i], shopdb.Item{SKU: h.name, Quantity: 1})
	}
	if a.name == "outbox" {
		exec(t, s.DB(), "INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES ('a', '{}', '2026-01-01')")
	}
	via := ""
	h.proxy, via = proxied(t, dsn)
	h.store = open(t, store.Options{DSN: via, MaxOpenConns: 3})
	must.Do(t, h.store.Ping(t.Context()))
	if n > 0 {
		h.gone = h.proxy.StallBefore(n)
	}
	return h
}

// check looks whether each order was closed or paid once.
func (h *silent) check(t *testing.T, s *store.Store) {
	t.Helper()
	var open, reserved int
	const query = "SELECT (SELECT COUNT(*) FROM orders AS o JOIN order_items AS i ON i.order_id = o.id" +
		" WHERE o.status IN (0, 1) AND i.sku_id = k.sku_id), reserved" +
		" FROM stock AS k WHERE sku_id = '%s' AND available + reserved = 1000"
	must.Do(t, s.DB().QueryRowContext(t.Context(), fmt.Sprintf(query, h.name)).Scan(&open, &reserved))
	paid := h.act.name == "asked" || h.act.name == "callback"
	expect.That(t, open == reserved && (reserved == 0 || paid), "%s: %d orders hold %d; its error is %v", h.name, open, reserved, h.err)
}

// proxied returns a proxy before the server of a DSN, and the DSN of the proxy.
func proxied(t *testing.T, dsn string) (p *testkit.Proxy, via string) {
	t.Helper()
	if isPostgres(t) {
		u := must.Get(url.Parse(dsn))(t)
		p = must.Get(testkit.NewProxy(u.Host))(t)
		u.Host = p.Addr()
		via = u.String()
	} else {
		cfg := must.Get(mysql.ParseDSN(dsn))(t)
		p = must.Get(testkit.NewProxy(cfg.Addr))(t)
		cfg.Addr = p.Addr()
		via = cfg.FormatDSN()
	}
	t.Cleanup(func() { must.Do(t, p.Close()) })
	return p, via
}

// The host of a process that migrates disappears. Another process goes on.
func TestSilentHost_AnotherProcessGoesOnWithAMigration(t *testing.T) {
	eachDatabase(t, silentMigration)
}

func silentMigration(t *testing.T) {
	var all sync.WaitGroup
	for _, n := range []int{12, 30} {
		dsn := ownDatabase(t)
		p, via := proxied(t, dsn)
		gone := p.StallBefore(n)
		lost, other := open(t, store.Options{DSN: via}), open(t, store.Options{DSN: dsn})
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() { _ = lost.Migrate(ctx) })
		all.Go(func() {
			<-gone
			within, end := context.WithTimeout(t.Context(), lockedFor)
			defer end()
			expect.NoError(t, other.Migrate(within))
			cancel()
		})
	}
	all.Wait()
}

// A proxy may ignore what a session sets. doctor says so, because the locks of a lost host would stay.
func TestSilence_NamesWhatAProxyIgnores(t *testing.T) { eachDatabase(t, silenceIsRead) }

func silenceIsRead(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t), MaxOpenConns: 1})
	longer, err := s.Silence(t.Context())
	must.That(t, longer == "" && err == nil, "a session keeps %q, %v", longer, err)
	if isPostgres(t) { // each transaction sets it, also behind a pooler
		var rows string
		must.Do(t, s.DB().QueryRowContext(t.Context(), "SELECT current_setting('tcp_user_timeout')").Scan(&rows))
		must.That(t, rows == "15000", "the server waits %s for a client that takes no rows", rows)
		return
	}
	exec(t, s.DB(), "SET SESSION wait_timeout = 28800, net_write_timeout = 60")
	longer, err = s.Silence(t.Context())
	must.That(t, strings.Contains(longer, "wait_timeout is 28800, net_write_timeout is 60") && err == nil, "a session keeps %q, %v", longer, err)
	if kindOf(t) == "mariadb" {
		exec(t, s.DB(), "SET SESSION idle_transaction_timeout = 0")
		longer, err = s.Silence(t.Context())
		must.That(t, strings.Contains(longer, "idle_transaction_timeout is 0") && err == nil, "a session keeps %q, %v", longer, err)
	}
}
