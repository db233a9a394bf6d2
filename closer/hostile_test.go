package closer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/partition"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// runHostile runs a closer whose Store, and whose Options.Category, break their contracts.
func runHostile(t *testing.T, log partition.Log, store Store, logs *testkit.LogBuffer, onHang func(why string)) (stop func()) {
	t.Helper()
	return startCloser(t, Options{
		Log: log, Store: store, Category: func(string) string { panic("no such category") },
		OnHang: onHang, Logger: slog.New(slog.NewTextHandler(logs, nil)), Registerer: testkit.NewMetrics(),
	})
}

// panics is a Store.On that panics on some orders, as code does that expects an order to have lines.
func panics(_ context.Context, requests []orderclose.CloseRequest) error {
	if testkit.Asks(requests, "poison") {
		var lines []string
		_ = lines[0]
	}
	return nil
}

// A panic uses up the attempts of its order, as an order that always fails does.
func TestCloser_APanicOfTheStoreIsTheFaultOfItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, logs := &orderLog{}, &testkit.Store{On: panics}, &testkit.LogBuffer{}
		log.add(t, "poison-new")
		o := orderclose.Order{ID: "poison-old", CreatedAt: time.Now(), Due: time.Now()}
		log.put(t, toClose, wire.Record{Order: o, Release: o.Due, Attempt: maxOrderRetries, Cause: causeFailed})
		for i := range 18 {
			log.add(t, fmt.Sprint("good-", i))
		}
		defer runHostile(t, log, store, logs, nil)()
		time.Sleep(time.Second)
		synctest.Wait()
		expect.Equal(t, len(store.Closed()), 18, "closed of the 18 other orders")
		expect.Equal(t, log.doneBelow(), 20, "done below")
		expect.Same(t, log.Keys("delay_1m"), []string{"poison-new"}, "retried")
		if dead := log.Appended()["dead"]; len(dead) != 1 || string(dead[0].Key) != "poison-old" {
			t.Errorf("dead letters %v, want poison-old", dead)
		} else if cause, _ := dead[0].Header(wire.HeaderCause); cause != causeFailed {
			t.Errorf("cause %q, want %q", cause, causeFailed)
		}
		out := logs.String()
		if n := strings.Count(out, "hostile_test.go"); strings.Count(out, "the store panicked") != 2 || n == 0 ||
			!strings.Contains(out, "order=poison-new") || !strings.Contains(out, "order=poison-old") || !strings.Contains(out, "Options.Category panicked") {
			t.Errorf("want one line with the stack of the store for each order, and one for Options.Category:\n%s", out)
		}
	})
}

func TestCloser_AProbeThatPanicsBlamesNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logs := &orderLog{}, &testkit.LogBuffer{}
		log.add(t, "poison")
		store := testkit.ProbedStore{Store: &testkit.Store{On: panics}, Probes: func(context.Context) error { panic("no connection") }}
		defer runHostile(t, log, store, logs, nil)()
		time.Sleep(time.Minute)
		synctest.Wait()
		expect.That(t, len(log.Appended()) == 0 && log.doneBelow() == 0, "done below %d, appended %v", log.doneBelow(), log.Appended())
	})
}

// patient is a Store.On without time limits of its own: on some orders it waits until its context ends.
func patient(ctx context.Context, requests []orderclose.CloseRequest) error {
	if testkit.Asks(requests, "hang") {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// The order on which a store waits without end uses up its attempts. The others are closed meanwhile.
func TestCloser_ACallWithoutAnEndIsTheFaultOfItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, begin := &orderLog{}, &testkit.Store{On: patient}, time.Now()
		log.add(t, "hang")
		for i := range 100 { // one each ten seconds
			log.addAt(t, 0, fmt.Sprint("good-", i), begin.Add(time.Duration(i)*10*time.Second))
		}
		hangs := 0
		defer runHostile(t, log, store, &testkit.LogBuffer{}, func(string) { hangs++ })()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n, retried := len(store.Closed()), log.Keys("delay_1m"); n != 100 || log.doneBelow() != 101 || hangs > 0 || !slices.Equal(retried, []string{"hang"}) {
			t.Errorf("%d of the 100 other orders were closed, done below %d, %d hangs, retried %v", n, log.doneBelow(), hangs, retried)
		}
		for i := range 100 {
			due := begin.Add(time.Duration(i) * 10 * time.Second)
			expect.AtMost(t, store.ClosedAt(fmt.Sprint("good-", i)).Sub(due), 30*time.Second, "the lateness of order %d", i)
		}
	})
}

// Each such call keeps a worker for good, so the process must be restarted before all are gone.
// After Run has returned, the process is the program's own.
func TestCloser_ACallThatIgnoresItsContextCallsOnHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, release, began := &orderLog{}, make(chan struct{}), time.Now()
		store := &testkit.Store{On: func(context.Context, []orderclose.CloseRequest) error { // as code does that waits for a client without a deadline
			<-release
			return fmt.Errorf("%w: released", orderclose.ErrUnavailable)
		}}
		for p := range 4 {
			log.addAt(t, p, fmt.Sprint("hang-", p), began)
		}
		var hangs atomic.Int32
		var first atomic.Int64
		stop := runHostile(t, log, store, &testkit.LogBuffer{}, func(why string) {
			hangs.Add(1)
			if strings.Contains(why, "a call of the store") {
				first.CompareAndSwap(0, int64(time.Since(began)))
			}
		})
		time.Sleep(10 * time.Minute)
		if after := time.Duration(first.Load()); after == 0 || after > bisect.CallTimeout+time.Minute {
			t.Errorf("the first call of OnHang for a call of the store came after %v, want it within %v", after, bisect.CallTimeout+time.Minute)
		}
		stop()
		n := hangs.Load()
		time.Sleep(time.Minute)
		expect.Equal(t, hangs.Load(), n, "calls of OnHang after Run had returned")
		close(release)
	})
}
