package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/mapping"
	"github.com/orderclose/orderclose/internal/store/sqlite"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, storetest.GormLeak) }

func open(t *testing.T, path string) *store.Store {
	t.Helper()
	return opened(t, path, sqlite.Options{})
}

func opened(t *testing.T, path string, o sqlite.Options) *store.Store {
	t.Helper()
	s := must.Get(sqlite.OpenWith(path, o))(t)
	t.Cleanup(func() {
		expect.NoError(t, s.Close())
	})
	return s
}

// inMemory opens another database for each store.
var inMemory = storetest.Server{New: func(t *testing.T, m *mapping.Mapping) func() *store.Store { return opener(t, sqlite.Memory, m) }}

var inAFile = storetest.Server{New: func(t *testing.T, m *mapping.Mapping) func() *store.Store {
	return opener(t, filepath.Join(t.TempDir(), "a b?c%.db"), m)
}}

func opener(t *testing.T, path string, m *mapping.Mapping) func() *store.Store {
	return func() *store.Store {
		t.Helper()
		return opened(t, path, sqlite.Options{Orders: m})
	}
}

func TestSuite_InMemory(t *testing.T) { storetest.Run(t, inMemory) }

func TestSuite_InAFile(t *testing.T) {
	server := inAFile
	if !ring.All() {
		server.Only = storetest.File
	}
	storetest.Run(t, server)
}

// The bubble's clock decides, to the millisecond, and no goroutine of the store outlives the bubble.
func TestBubble_ClosesAtItsMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sqlite.Memory)
		must.Do(t, s.Migrate(t.Context()))
		o := orderclose.Order{ID: "a", CreatedAt: time.Now(), Due: time.Now().Add(30 * time.Minute)}
		must.Do(t, scenario.OrdersOf(s).CreateOrder(t.Context(), o, nil))
		var wg sync.WaitGroup
		for _, c := range []struct {
			at   time.Duration
			want orderclose.Verdict
		}{
			{30*time.Minute - time.Millisecond, orderclose.NotDue},
			{30 * time.Minute, orderclose.Closed},
			{30*time.Minute + time.Millisecond, orderclose.AlreadyClosed},
		} {
			wg.Go(func() {
				<-time.After(c.at)
				out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "a"}})
				expect.That(t, err == nil && out[0].Verdict == c.want, "closing after %v: %v, %v; want %v", c.at, out, err, c.want)
			})
		}
		wg.Wait()
		time.Sleep(time.Second - time.Millisecond) // the last close changed nothing
		expect.That(t, s.ClosedWithin(time.Second+time.Millisecond) && !s.ClosedWithin(time.Second), "the store does not know when it closed an order last")
	})
}

// No goroutine in the bubble waits on a mutex while another works, so the bubble's clock advances
// and the deadline of a call that waits for the only connection passes.
func TestBubble_WritersWaitInThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sqlite.Memory)
		must.Do(t, s.Migrate(t.Context()))
		o := orderclose.Order{ID: "a", CreatedAt: time.Now(), Due: time.Now()}
		must.Do(t, scenario.OrdersOf(s).CreateOrder(t.Context(), o, nil))
		busy := must.Get(s.DB().BeginTx(t.Context(), nil))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ask := []orderclose.CloseRequest{{OrderID: "a"}}
		if _, err := s.CloseOrders(ctx, orderclose.PathPipeline, ask); !errors.Is(err, orderclose.ErrUnavailable) {
			t.Errorf("after a minute of waiting: %v; want ErrUnavailable", err)
		}
		var wg sync.WaitGroup
		var closed atomic.Int32
		for range 8 {
			wg.Go(func() {
				out, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, ask)
				if err != nil {
					t.Error(err)
				} else if out[0].Verdict == orderclose.Closed {
					closed.Add(1)
				}
			})
		}
		<-time.After(time.Minute)
		must.Do(t, busy.Rollback())
		if wg.Wait(); closed.Load() != 1 {
			t.Errorf("%d of 8 closed the order, want 1", closed.Load())
		}
	})
}

func TestOpen_DatabasesInMemoryAreSeparate(t *testing.T) {
	a, b := open(t, sqlite.Memory), open(t, sqlite.Memory)
	must.Do(t, a.Migrate(t.Context()))
	err := b.Migrated(t.Context())
	expect.That(t, err != nil, "the second database has the first one's schema")
}

func TestOpen_UsesTheGivenClock(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("far", 8*3600))
	s := must.Get(sqlite.Open(sqlite.Memory, func() time.Time { return at }))(t)
	defer func() { _ = s.Close() }()
	now, err := s.Now(t.Context())
	want := at.UTC().Truncate(time.Millisecond)
	expect.That(t, err == nil && now == want, "now is %v, %v; want %v", now, err, want)
}

func TestOpen_FailsWithoutTheFolder(t *testing.T) {
	if s, err := sqlite.Open(filepath.Join(t.TempDir(), "no", "such", "folder.db"), nil); err == nil {
		_ = s.Close()
		t.Error("Open succeeded")
	}
}
