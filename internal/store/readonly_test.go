package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/servers"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
	"github.com/orderclose/orderclose/internal/wire"
)

// A user with SUPER may write on a read-only server, such as a replica. No call of the store does, also the first one of a process.
func TestReadOnly_APrivilegedUserWritesNothing(t *testing.T) { on(t, privilegedUser, "mariadb") }

func privilegedUser(t *testing.T) {
	own := must.Get(servers.New(kindOf(t), filepath.Join(t.TempDir(), "server")))(t)
	must.Do(t, own.Start(t.Context()))
	t.Cleanup(func() { must.Do(t, own.Stop(context.Background())) })
	server := "root@tcp(" + own.Addr() + ")/"
	dsn, empty := storetest.NewDatabase(t, server), storetest.NewDatabase(t, server)
	admin := open(t, store.Options{DSN: dsn})
	must.Do(t, admin.Migrate(t.Context()))
	shop := openMigrated(t, store.Options{DSN: dsn})
	overdue(t, shop, "a", "late")
	out, err := shop.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "late"}})
	must.That(t, err == nil && out[0].Verdict == orderclose.Closed, "%v, %v", out, err)
	state := func() string {
		return texts(t, admin, "SELECT CONCAT_WS(' ', (SELECT GROUP_CONCAT(status ORDER BY id) FROM orders), (SELECT COUNT(*) FROM receipts),"+
			" (SELECT COUNT(*) FROM outbox_events), (SELECT COUNT(*) FROM pauses), (SELECT COUNT(*) FROM late_payments),"+
			" (SELECT COUNT(*) FROM operator_actions), (SELECT COUNT(*) FROM information_schema.tables))")
	}
	before := state()
	exec(t, admin.DB(), "SET GLOBAL read_only = 1")
	for what, write := range map[string]func(s *store.Store) error{
		"a close": func(s *store.Store) error { return <-closeA(t, s) },
		"an order that is paid at the provider": func(s *store.Store) error {
			_, err := s.PayOrders(t.Context(), []orderclose.CloseRequest{{OrderID: "a"}})
			return err
		},
		"a late payment": func(s *store.Store) error {
			_, err := s.RecordLate(t.Context(), []store.LatePayment{{OrderID: "late", PaymentID: "p", Source: "test"}})
			return err
		},
		"a pause": func(s *store.Store) error {
			_, err := s.Pause(t.Context(), "", time.Hour, "", true)
			return err
		},
		"an outbox": func(s *store.Store) error {
			_, err := s.Dispatch(t.Context(), wire.EventOutbox, 0, 9, func(_ context.Context, rows []wire.OutboxRow) []int64 { return []int64{rows[0].ID} })
			return err
		},
		"the check of doctor": func(s *store.Store) error { return s.Writable(t.Context()) },
		"that of status":      func(s *store.Store) error { return s.TakesWrites(t.Context()) },
		"migrate":             func(*store.Store) error { return open(t, store.Options{DSN: empty}).Migrate(t.Context()) },
	} {
		err := write(open(t, store.Options{DSN: dsn}))
		expect.That(t, errors.Is(err, orderclose.ErrUnavailable) && strings.Contains(err.Error(), "read-only"), "%s: %v", what, err)
	}
	expect.Same(t, state(), before, "the tables of a read-only server")
	s := open(t, store.Options{DSN: dsn})
	wantError(t, <-closeA(t, s), orderclose.ErrNoOrderAtFault)
	exec(t, admin.DB(), "SET GLOBAL read_only = 0")
	closesA(t, s, closeA(t, s)) // it asks again at once
}
