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
	"github.com/orderclose/orderclose/internal/closing"
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

// panicking is a store that panics on some orders, as code does that expects an order to have lines.
type panicking struct {
	*fakeStore
	probePanics bool
}

func (s panicking) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	for _, r := range requests {
		if strings.HasPrefix(r.OrderID, "poison") {
			var lines []string
			_ = lines[0]
		}
	}
	return s.fakeStore.CloseOrders(ctx, path, requests)
}

func (s panicking) Probe(context.Context) error {
	if s.probePanics {
		panic("no connection")
	}
	return nil
}

// A panic uses up the attempts of its order, as an order that always fails does.
func TestCloser_APanicOfTheStoreIsTheFaultOfItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, logs := &orderLog{}, &fakeStore{}, &testkit.LogBuffer{}
		log.add(t, "poison-new")
		o := orderclose.Order{ID: "poison-old", CreatedAt: time.Now(), Due: time.Now()}
		log.put(t, toClose, wire.Record{Order: o, Release: o.Due, Attempt: maxOrderRetries, Cause: causeFailed})
		for i := range 18 {
			log.add(t, fmt.Sprint("good-", i))
		}
		defer runHostile(t, log, panicking{fakeStore: store}, logs, nil)()
		time.Sleep(time.Second)
		synctest.Wait()
		expect.That(t, len(store.ids()) == 18 && log.doneBelow() == 20, "%d of the 18 other orders were closed, done below %d", len(store.ids()), log.doneBelow())
		expect.Same(t, log.Keys("delay_1m"), []string{"poison-new"}, "retried")
		if dead := log.Appended()["dead"]; len(dead) != 1 || string(dead[0].Key) != "poison-old" {
			t.Errorf("dead letters %v, want poison-old", dead)
		} else if cause, _ := dead[0].Header(wire.HeaderCause); cause != causeFailed {
			t.Errorf("cause %q, want %q", cause, causeFailed)
		}
		out := logs.String()
		if n := strings.Count(out, "hostile_test.go"); strings.Count(out, "the store panicked") != 1 || n == 0 ||
			!strings.Contains(out, "Options.Category panicked") {
			t.Errorf("want one line with the stack of the store, and one for Options.Category:\n%s", out)
		}
	})
}

func TestCloser_AProbeThatPanicsBlamesNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logs := &orderLog{}, &testkit.LogBuffer{}
		log.add(t, "poison")
		defer runHostile(t, log, panicking{&fakeStore{}, true}, logs, nil)()
		time.Sleep(time.Minute)
		synctest.Wait()
		expect.That(t, len(log.Appended()) == 0 && log.doneBelow() == 0, "done below %d, appended %v", log.doneBelow(), log.Appended())
	})
}

// deaf hangs on some orders and ignores its context, as code does that waits for a client without
// a deadline.
type deaf struct {
	*fakeStore
	release chan struct{}
}

func (s deaf) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	for _, r := range requests {
		if strings.HasPrefix(r.OrderID, "hang") {
			<-s.release
			return nil, fmt.Errorf("%w: released", orderclose.ErrUnavailable)
		}
	}
	return s.fakeStore.CloseOrders(ctx, path, requests)
}

// patient is a store without time limits of its own: on some orders it waits until its context ends.
type patient struct{ *fakeStore }

func (s patient) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	for _, r := range requests {
		if strings.HasPrefix(r.OrderID, "hang") {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	return s.fakeStore.CloseOrders(ctx, path, requests)
}

// The order on which a store waits without end uses up its attempts. The others are closed meanwhile.
func TestCloser_ACallWithoutAnEndIsTheFaultOfItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, begin := &orderLog{}, &fakeStore{}, time.Now()
		log.add(t, "hang")
		for i := range 100 { // one each ten seconds
			due := begin.Add(time.Duration(i) * 10 * time.Second)
			log.putAt(t, toClose, wire.Record{Order: orderclose.Order{ID: fmt.Sprint("good-", i), CreatedAt: begin, Due: due}, Release: due}, due)
		}
		hangs := 0
		defer runHostile(t, log, patient{store}, &testkit.LogBuffer{}, func(string) { hangs++ })()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n, retried := len(store.ids()), log.Keys("delay_1m"); n != 100 || log.doneBelow() != 101 || hangs > 0 || !slices.Equal(retried, []string{"hang"}) {
			t.Errorf("%d of the 100 other orders were closed, done below %d, %d hangs, retried %v", n, log.doneBelow(), hangs, retried)
		}
		for i := range 100 {
			due := begin.Add(time.Duration(i) * 10 * time.Second)
			expect.AtMost(t, store.at(fmt.Sprint("good-", i)).Sub(due), 30*time.Second, "the lateness of order %d", i)
		}
	})
}

// Each such call keeps a worker for good, so the process must be restarted before all are gone.
// After Run has returned, the process is the program's own.
func TestCloser_ACallThatIgnoresItsContextCallsOnHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, began := &orderLog{}, deaf{&fakeStore{}, make(chan struct{})}, time.Now()
		for p := range 4 {
			o := orderclose.Order{ID: fmt.Sprint("hang-", p), CreatedAt: began, Due: began}
			log.put(t, testkit.TopicPartition{Topic: "order-close", Partition: p}, wire.Record{Order: o, Release: began})
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
		if after := time.Duration(first.Load()); after == 0 || after > closing.CallTimeout+time.Minute {
			t.Errorf("the first call of OnHang for a call of the store came after %v, want it within %v", after, closing.CallTimeout+time.Minute)
		}
		stop()
		n := hangs.Load()
		time.Sleep(time.Minute)
		expect.Equal(t, hangs.Load(), n, "calls of OnHang after Run had returned")
		close(store.release)
	})
}
