package bisect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// errHangs is the error for an order on which the store hangs.
var errHangs = fmt.Errorf("%w: no answer in time", orderclose.ErrUnavailable)

// hangsOn returns a Store that hangs on some orders.
func hangsOn(bad ...string) *failing {
	s := newFailing()
	for _, id := range bad {
		s.bad[id] = errHangs
	}
	return s
}

func named(prefix string, n int) []orderclose.CloseRequest {
	requests := make([]orderclose.CloseRequest, n)
	for i := range requests {
		requests[i].OrderID = fmt.Sprint(prefix, i)
	}
	return requests
}

// closeAll closes the requests, each time together with new orders, until all of them have a verdict.
func closeAll(t interface{ Fatalf(string, ...any) }, c *Search, s Store, rounds int, requests []orderclose.CloseRequest) map[string]orderclose.Verdict {
	got := map[string]orderclose.Verdict{}
	for n := range rounds {
		out, err := c.Close(context.Background(), s, orderclose.PathPipeline, append(requests, named(fmt.Sprintf("fresh-%d-", n), 3)...))
		var left []orderclose.CloseRequest
		for i, o := range out[:len(requests)] {
			if got[requests[i].OrderID] = o.Verdict; o.Verdict == "" {
				left = append(left, requests[i])
			}
		}
		if (err == nil) != (len(left) == 0) || err != nil && !errors.Is(err, orderclose.ErrUnavailable) {
			t.Fatalf("%d have no verdict, and the error is %v", len(left), err)
		}
		if requests = left; len(requests) == 0 {
			return got
		}
	}
	return got
}

// Exactly the orders on which the store hangs are blamed; the others are closed.
func TestSearch_BlamesTheOrdersOnWhichTheStoreHangs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := hangsOn()
		requests := named("o", rapid.IntRange(1, 64).Draw(t, "orders"))
		for _, r := range requests {
			if rapid.IntRange(0, 9).Draw(t, "fate") == 0 {
				s.bad[r.OrderID] = errHangs
			}
		}
		rounds := 10 + 4*len(s.bad)
		got := closeAll(t, &Search{}, s, rounds, requests)
		for _, r := range requests {
			want := orderclose.Closed
			if s.bad[r.OrderID] != nil {
				want = orderclose.Failed
			}
			must.That(t, got[r.OrderID] == want, "%d of %d hang: order %s is %q after %d rounds, want %s",
				len(s.bad), len(requests), r.OrderID, got[r.OrderID], rounds, want)
		}
	})
}

func TestSearch_BlamesAnOrderOnlyWithProof(t *testing.T) {
	s := hangsOn("bad")
	c := &Search{}
	bad := []orderclose.CloseRequest{{OrderID: "bad"}}
	for n := range 5 {
		for again := range 5 { // without an answer since its last failure nothing is proved
			out, err := c.Close(t.Context(), s, orderclose.PathPipeline, bad)
			want := orderclose.Verdict("")
			if n > 0 && again == 0 {
				want = orderclose.Failed
			}
			must.That(t, out[0].Verdict == want && (want == "") == errors.Is(err, orderclose.ErrUnavailable), "%+v, %v after verdicts on others %d times", out, err, n)
			must.That(t, want == "" || errors.Is(out[0].Err, errHangs), "%+v", out)
		}
		must.Get(c.Close(t.Context(), s, orderclose.PathPipeline, named(fmt.Sprint("good", n), 2)))(t)
	}
}

// One call in ten fails. All orders are closed, and hardly any uses up an attempt.
func TestSearch_BlamesHardlyAnyOrderOfAStoreThatFailsAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := &testkit.Store{On: func(context.Context, []orderclose.CloseRequest) error {
		if random.Float64() < .1 {
			return errHangs
		}
		return nil
	}}
	c := &Search{}
	open, blamed := named("o", 1000), 0
	for range 30_000 {
		if len(open) == 0 {
			break
		}
		part := open[:min(3, len(open))]
		open = open[len(part):]
		out, _ := c.Close(t.Context(), s, orderclose.PathPipeline, part)
		for i, o := range out {
			switch o.Verdict {
			case "":
				open = append(open, part[i])
			case orderclose.Failed:
				blamed++
			}
		}
	}
	must.That(t, len(open) == 0 && blamed <= 20, "of 1000 orders %d are open, and %d used up an attempt", len(open), blamed)
}

// A store that is down costs the calls until three orders have failed alone, and then one for each batch.
func TestSearch_BlamesNoOrderIfTheStoreIsDown(t *testing.T) {
	var down bool
	s := &testkit.Store{On: func(context.Context, []orderclose.CloseRequest) error {
		if down {
			return errHangs
		}
		return nil
	}}
	c := &Search{}
	for outage := range 5 {
		down = true
		for n := range 50 {
			before := len(s.Batches())
			out, err := c.Close(t.Context(), s, orderclose.PathSweep, named(fmt.Sprint("o", outage), 100))
			must.That(t, errors.Is(err, orderclose.ErrUnavailable), "%v", err)
			for _, o := range out {
				must.That(t, o.Verdict == "", "in outage %d: %+v", outage, o)
			}
			calls := len(s.Batches()) - before
			must.That(t, calls <= 1+3*LaneCalls+maxAlone-1 && (n == 0 || calls <= 1), "batch %d cost %d calls", n, calls)
		}
		down = false
		out, err := c.Close(t.Context(), s, orderclose.PathSweep, named(fmt.Sprint("fresh", outage), 10))
		must.That(t, err == nil && out[0].Verdict == orderclose.Closed, "%+v, %v", out, err)
	}
}

// With a Prober, one order alone is enough proof.
func TestSearch_AProbeReplacesAnotherOrder(t *testing.T) {
	away := errors.New("disk full")
	now := away
	s := hangsOn("bad").probed(func(context.Context) error { return now })
	c := &Search{}
	bad := []orderclose.CloseRequest{{OrderID: "bad"}}
	for range 10 {
		_, err := c.Close(t.Context(), s, orderclose.PathPipeline, bad)
		must.That(t, errors.Is(err, away), "%v", err)
	}
	now = nil
	for range 10 {
		if out, err := c.Close(t.Context(), s, orderclose.PathPipeline, bad); err == nil {
			must.That(t, out[0].Verdict == orderclose.Failed, "%+v", out)
			return
		}
	}
	t.Error("the order is never blamed")
}

func TestSearch_AProbeWithoutAnEndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hangsOn("bad0").probed(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		_, err := (&Search{Limit: CallTimeout}).Close(t.Context(), s, orderclose.PathPipeline, named("bad", 1))
		must.That(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	})
}

// No other order has to get a verdict.
func TestSearch_APanicIsTheFaultOfItsOrder(t *testing.T) {
	s := &testkit.Store{On: func(context.Context, []orderclose.CloseRequest) error { panic("no such SKU") }}
	out, err := new(Search).Close(t.Context(), s, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "bad"}})
	must.That(t, err == nil && out[0].Verdict == orderclose.Failed, "a panic: %+v, %v; want failed", out, err)
}

// A store that is certain that no order is at fault, such as one whose connection is cut repeatedly, uses up no attempt of any order.
func TestSearch_BlamesNoOrderAfterErrNoOrderAtFault(t *testing.T) {
	s := hangsOn("cut")
	s.bad["cut"] = fmt.Errorf("%w: connection lost: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault)
	c := &Search{}
	for n := range 10 {
		must.Get(c.Close(t.Context(), s, orderclose.PathPipeline, named(fmt.Sprint("other", n), 1)))(t)
		out, err := c.Close(t.Context(), s, orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "cut"}})
		must.That(t, out[0].Verdict == "" && errors.Is(err, orderclose.ErrUnavailable), "the order got the verdict %q, %v", out[0].Verdict, err)
	}
}

// Meanwhile other batches get all their verdicts.
func TestSearch_ASearchEndsWhateverOtherBatchesSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, began := &Search{Limit: CallTimeout}, time.Now()
		s := &testkit.Store{On: func(ctx context.Context, requests []orderclose.CloseRequest) error {
			if testkit.Asks(requests, "bad") {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		defer others.Wait()
		defer cancel()
		others.Go(func() {
			for ctx.Err() == nil {
				if _, err := c.Close(ctx, s, orderclose.PathPipeline, named("good-", 3)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
			}
		})
		out, _ := c.Close(ctx, s, orderclose.PathPipeline, append(named("beside-", 499), orderclose.CloseRequest{OrderID: "bad"}))
		took := time.Since(began)
		must.That(t, took <= 10*CallTimeout && out[0].Verdict == orderclose.Closed, "the search took %v, and the first order is %q", took, out[0].Verdict)
	})
}

// The others of its batch are closed at once.
func TestSearch_AnOrderThatFailsAgainGetsTwiceTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.Store{On: func(ctx context.Context, requests []orderclose.CloseRequest) error {
			if testkit.Asks(requests, "slow") {
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		}}
		c := &Search{Limit: CallTimeout}
		for attempt := range 3 {
			requests := append(named("o", 3), orderclose.CloseRequest{OrderID: "slow", Attempt: 1 + attempt})
			out, _ := c.Close(t.Context(), s, orderclose.PathPipeline, requests)
			slow := out[3].Verdict == orderclose.Closed
			must.That(t, out[0].Verdict == orderclose.Closed && slow == (attempt > 0), "attempt %d: %+v", 1+attempt, out)
		}
	})
}
