package compensator

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// arriving are bad orders that keep coming while the loop works, or come at once.
type arriving struct {
	trouble trouble
	every   time.Duration // between two bad orders; 0: all come at once
	n       int           // at once
	beside  int           // healthy orders that are lost in the same seconds
	call    time.Duration // of the store
	breaker bool          // the store is a service behind a circuit breaker
	bound   time.Duration // for each healthy order
	all     bool          // it takes long
}

func (a arriving) String() string {
	return fmt.Sprintf("kind %d each %v or %d at once beside %d at %v a call, breaker %v", a.trouble, a.every, a.n, a.beside, a.call, a.breaker)
}

var arrivals = []arriving{
	{trouble: hanging, n: 1, beside: 500, bound: 30 * time.Second},
	{trouble: hanging, n: 10, beside: 500, bound: 40 * time.Second},
	{trouble: hanging, n: 50, beside: 500, bound: 60 * time.Second},
	{trouble: hanging, every: time.Minute, bound: 30 * time.Second, all: true},
	{trouble: hanging, every: 20 * time.Second, bound: 30 * time.Second, all: true},
	{trouble: hanging, every: 5 * time.Second, bound: 30 * time.Second},
	{trouble: hanging, every: 5 * time.Second, call: 500 * time.Millisecond, bound: 40 * time.Second, all: true},
	{trouble: hanging, every: 20 * time.Second, call: 2 * time.Second, bound: 60 * time.Second, all: true},
	{trouble: silent, every: 5 * time.Second, bound: 40 * time.Second, all: true},
	{trouble: silent, every: time.Second, bound: 40 * time.Second},
	{trouble: silent, every: 10 * time.Second, breaker: true, bound: 40 * time.Second, all: true},
	{trouble: silent, every: time.Second, breaker: true, bound: 40 * time.Second},
	{trouble: waiting, every: 5 * time.Second, bound: 40 * time.Second, all: true},
	{trouble: waiting, every: time.Second, bound: 40 * time.Second},
	{trouble: ownCause, every: 100 * time.Millisecond, bound: 30 * time.Second},
	{trouble: contended, every: 100 * time.Millisecond, bound: 30 * time.Second, all: true},
	{trouble: shown, every: 100 * time.Millisecond, bound: 30 * time.Second, all: true},
}

// behindBreaker is a shop that is called as a service.
type behindBreaker struct {
	*shop
	service *httpcall.Endpoint
}

func (b behindBreaker) LimitsItself() bool { return true }

func (b behindBreaker) CloseOrders(ctx context.Context, p orderclose.Path, r []orderclose.CloseRequest) (outcomes []orderclose.Outcome, err error) {
	err = b.service.Do(ctx, func(ctx context.Context) (err error) {
		outcomes, err = b.shop.CloseOrders(ctx, p, r)
		return err
	})
	return outcomes, err
}

// Whatever bad orders come, and however long: each healthy order closes soon, also an older one that becomes unpaid again.
func TestLoop_HealthyOrdersCloseSoonWhileBadOnesKeepComing(t *testing.T) {
	for _, a := range arrivals {
		t.Run(a.String(), func(t *testing.T) {
			if a.all && !ring.All() {
				t.Skip("it takes seconds")
			}
			for seed := range seeds() {
				play(t, seed, func(w *world) {
					if a.breaker {
						w.options = func(o *Options) { o.Store = behindBreaker{w.shop, httpcall.NewEndpoint("close", nil)} }
					}
					w.process("a")
					time.Sleep(time.Minute)
					w.change(func() { w.callTime = a.call })
					healthy := w.arrive(a, 12*time.Minute)
					time.Sleep(a.bound)
					late, open := w.worst(healthy), slices.IndexFunc(healthy, func(o *shopOrder) bool { return o.open })
					t.Logf("worst of %d: %v", len(healthy), late)
					expect.That(t, late <= a.bound && open < 0, "seed %d: a healthy order is closed after %v, want %v; open %v", seed, late, a.bound, open >= 0)
				})
			}
		})
	}
}

// arrive adds bad orders for a time, and returns the healthy ones that it has added beside them. Those that are unpaid again count from then on.
func (w *world) arrive(a arriving, lasting time.Duration) (all []*shopOrder) {
	now := w.now()
	w.add(a.trouble, "", "bad", spread(w.r, a.n, now, now.Add(3*time.Second))...)
	all = w.add(healthy, "", "beside", spread(w.r, a.beside, now, now.Add(3*time.Second))...)
	step := 100 * time.Millisecond
	for i := 1; time.Since(now) < lasting; i++ {
		time.Sleep(step)
		if at := time.Duration(i) * step; a.every > 0 && at%a.every == 0 {
			w.add(a.trouble, "", fmt.Sprintf("bad%06d", i), w.now())
		}
		if i%80 == 0 {
			all = append(all, w.add(healthy, "", fmt.Sprintf("good%06d", i), w.now())...)
		}
		if i%300 == 0 {
			again := w.add(healthy, "", fmt.Sprintf("again%06d", i), w.now().Add(-time.Hour))
			w.change(func() { again[0].since = w.now() })
			all = append(all, again...)
		}
	}
	return all
}
