package closer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/tracing"
)

// testBatcher is a batcher whose transactions end one by one, when the test sends to release.
type testBatcher struct {
	*batcher
	transactions *transactions
	t            *testing.T
	release      chan error
	mu           sync.Mutex
	ran          []string // the orders of each transaction, in the order of their start
}

func newTestBatcher(t *testing.T, workers int) *testBatcher {
	m := must.Get(newMetrics(nil, nil))(t)
	b := &testBatcher{t: t, release: make(chan error)}
	b.batcher = newBatcher(newLimiter(slotTime, 10, workers), workers, 10, func(float64) {})
	store := &testkit.Store{Verdict: testkit.Gives(orderclose.AlreadyClosed, ""), On: b.runs}
	b.transactions = &transactions{
		batcher: b.batcher, store: store, metrics: m, onHang: func() {},
		pauses: &pauseLog{logger: slog.New(slog.DiscardHandler)},
	}
	return b
}

func (b *testBatcher) runs(ctx context.Context, requests []orderclose.CloseRequest) error {
	var ids []string
	for _, r := range requests {
		ids = append(ids, r.OrderID)
	}
	b.mu.Lock()
	b.ran = append(b.ran, strings.Join(ids, " "))
	b.mu.Unlock()
	select {
	case err := <-b.release:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// orders returns n requests with ids that begin with the name.
func orders(name string, n int) []orderclose.CloseRequest {
	requests := make([]orderclose.CloseRequest, n)
	for i := range requests {
		requests[i].OrderID = fmt.Sprintf("%s%d", name, i)
	}
	return requests
}

// answer is the result of a job.
type answer struct {
	outcomes []orderclose.Outcome
	err      error
}

// wait submits a job in the background.
func (b *testBatcher) wait(ctx context.Context, name string, n int) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		outcomes, err := b.transactions.close(ctx, orders(name, n), make([]string, n), func() {})
		got <- answer{outcomes, err}
	}()
	synctest.Wait()
	return got
}

// finish ends all transactions and requires that no job is left.
func (b *testBatcher) finish() {
	b.t.Helper()
	close(b.release)
	synctest.Wait()
	expect.That(b.t, len(b.running) == 0 && len(b.waiting) == 0, "left behind: %+v", b.batcher)
}

func TestBatcher_CombinesWaitingJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBatcher(t, 1)
		b.wait(t.Context(), "a", 1)
		jobB, jobC, jobE := b.wait(t.Context(), "b", 3), b.wait(t.Context(), "c", 6), b.wait(t.Context(), "e", 2)
		b.release <- nil
		synctest.Wait()
		if want := "b0 b1 b2 c0 c1 c2 c3 c4 c5"; len(b.ran) != 2 || b.ran[1] != want {
			t.Fatalf("transactions of %q; want the second to be %q, as ten may go together", b.ran, want)
		}
		b.release <- nil
		for name, got := range map[string]answer{"b": <-jobB, "c": <-jobC} {
			if want := len(orders(name, map[string]int{"b": 3, "c": 6}[name])); got.err != nil || len(got.outcomes) != want || got.outcomes[0].OrderID != name+"0" {
				t.Errorf("%s got %+v, want its own %d", name, got, want)
			}
		}
		failed := fmt.Errorf("away: %w", orderclose.ErrNoOrderAtFault)
		b.release <- failed
		expect.Is(t, (<-jobE).err, failed, "the last job")
		b.finish()
	})
}

func TestBatcher_RunsMoreThanTwoTransactionsOnlyIfSomeAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBatcher(t, 4)
		b.limiter.limit = 1000
		b.maxOrders = 1
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			b.wait(t.Context(), name, 1)
		}
		counts := func() (running, slow int) {
			b.batcher.mu.Lock()
			defer b.batcher.mu.Unlock()
			for _, g := range b.running {
				if g.slow {
					slow++
				}
			}
			return len(b.running), slow
		}
		if running, _ := counts(); running != 2 {
			t.Errorf("%d transactions run at once, want 2", running)
		}
		time.Sleep(b.limiter.target)
		synctest.Wait()
		if running, slow := counts(); running != 4 || slow != 2 {
			t.Errorf("%d transactions run, and %d of them count as slow; want all 4 workers, and 2", running, slow)
		}
		b.finish()
		if _, slow := counts(); slow != 0 {
			t.Errorf("%d slow transactions are left", slow)
		}
	})
}

// A closer that has just started has the same two slots for full batches as one that has run for a while.
func TestBatcher_BeginsWithAFullBatchInEachSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, of := range []struct{ workers, running int }{{1, 1}, {4, 2}} {
			b := newTestBatcher(t, of.workers)
			for _, name := range []string{"a", "b", "c"} {
				b.wait(t.Context(), name, b.maxOrders)
			}
			if used := b.counts(); used.quick != of.running || used.orders != of.running*b.maxOrders {
				t.Errorf("%d workers begin with %d transactions of %d orders, want %d full ones", of.workers, used.quick, used.orders, of.running)
			}
			b.finish()
		}
	})
}

func TestBatcher_CutsAWaitingJobToTheCurrentLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBatcher(t, 2)
		b.failed()
		got := b.wait(t.Context(), "a", 10)
		used := b.counts()
		expect.That(t, used.orders == b.limiter.minLimit, "%d are in flight, want %d", used.orders, b.limiter.minLimit)
		b.finish()
		expect.Equal(t, len((<-got).outcomes), b.limiter.minLimit, "closed of 10 orders")
	})
}

func TestBatcher_AJobThatLeavesUnblocksTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBatcher(t, 2)
		b.limiter.limit = 10
		b.wait(t.Context(), "a", 8)
		ctx, cancel := context.WithCancel(t.Context())
		gone := b.wait(ctx, "b", 5) // too many beside 8
		b.wait(t.Context(), "c", 2)
		must.That(t, len(b.ran) == 1, "transactions %q, with a limit of 10", b.ran)
		cancel()
		got := <-gone
		expect.That(t, got.err != nil, "5 orders ran beside 8, with a limit of 10")
		synctest.Wait()
		expect.That(t, len(b.ran) == 2 && b.ran[1] == "c0 c1", "transactions %q; want the job behind to run", b.ran)
		b.finish()
	})
}

func TestBatcher_ATransactionRunsUntilAllItsJobsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBatcher(t, 1)
		b.wait(t.Context(), "a", 1)
		one, stopOne := context.WithCancel(t.Context())
		two, stopTwo := context.WithCancel(t.Context())
		jobB, jobC := b.wait(one, "b", 1), b.wait(two, "c", 1)
		b.release <- nil
		stopOne()
		got := <-jobB
		expect.That(t, errors.Is(got.err, context.Canceled), "the job that left got %+v", got)
		synctest.Wait()
		expect.Equal(t, len(b.running), 1, "the transaction ended when the first job left")
		stopTwo()
		<-jobC
		synctest.Wait()
		expect.Equal(t, len(b.running), 0, "transactions that go on without a job")
		b.finish()
	})
}

// The store may do anything. A slow transaction that was in flight at the last cut does not halve the limit again.
func TestLimiter_StaysWithinItsBoundsAndHalvesOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch, workers := rapid.IntRange(1, 999).Draw(t, "batch"), rapid.IntRange(1, 16).Draw(t, "workers")
		l := newLimiter(100*time.Millisecond, batch, workers)
		now := epoch
		for range rapid.IntRange(1, 100).Draw(t, "transactions") {
			before := l
			took := time.Duration(rapid.Int64Range(0, int64(300*time.Millisecond)).Draw(t, "took"))
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(200*time.Millisecond)).Draw(t, "later")))
			inFlight := rapid.IntRange(1, l.maxLimit).Draw(t, "in flight")
			began := now.Add(-took)
			l.observe(sample{inFlight, began, took})
			slow, most := took > l.target, 2*before.limit
			switch {
			case l.limit < l.minLimit || l.limit > l.maxLimit:
				t.Fatalf("a limit of %d outside %d to %d", l.limit, l.minLimit, l.maxLimit)
			case l.limit > most || l.limit < before.limit && (!slow || l.limit != max(before.limit/2, l.minLimit)):
				t.Fatalf("a transaction of %v changed the limit from %d to %d", took, before.limit, l.limit)
			case l.limit > before.limit && 2*inFlight < before.limit && before.limit >= l.first:
				t.Fatalf("%d of %d in use changed the limit to %d", inFlight, before.limit, l.limit)
			case slow && began.Before(before.changed) && l.limit != before.limit:
				t.Fatal("cut twice for transactions in flight at the first cut")
			}
		}
		if l.failed(now); l.limit != l.minLimit {
			t.Fatalf("the store is unavailable and the limit is %d", l.limit)
		}
	})
}

// The store takes a millisecond for each order in flight. The limit ends near the number of orders that fit into the target time.
func TestLimiter_SettlesAtTheTargetTime(t *testing.T) {
	l := newLimiter(250*time.Millisecond, 500, 4)
	l.failed(epoch)
	now := epoch
	for range 200 {
		took := time.Duration(l.limit) * time.Millisecond
		l.observe(sample{l.limit, now, took})
		now = now.Add(took)
		must.That(t, took <= 2*l.target, "a transaction took %v", took)
	}
	expect.That(t, l.limit >= 100 && l.limit <= 300, "a limit of %d, want it around 250", l.limit)
}

// A limit that fell once is no smaller than that of a restarted closer hours later, though there were never many orders.
func TestLimiter_RecoversWhileFewOrdersAreClosed(t *testing.T) {
	l := newLimiter(250*time.Millisecond, 500, 4)
	l.failed(epoch)
	for range 10_000 {
		l.observe(sample{1, l.changed, time.Millisecond})
	}
	expect.Equal(t, l.limit, newLimiter(250*time.Millisecond, 500, 4).limit, "the limit")
}

const sampledTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTransaction_HasASpanOfEachTracedOrderUpToTwenty(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	s := &transactions{tracer: tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)))}
	requests, outcomes := make([]orderclose.CloseRequest, 30), make([]orderclose.Outcome, 30)
	for i := range requests {
		requests[i].OrderID, outcomes[i].Verdict = fmt.Sprint(i), orderclose.Closed
		if i >= 5 {
			requests[i].Traceparent = sampledTrace
		}
	}
	outcomes[5] = orderclose.Outcome{}
	ctx, traced := s.trace(t.Context(), requests)
	batch := trace.SpanContextFromContext(ctx)
	traced.end(outcomes, errors.New("the store failed"))
	expect.Equal(t, len(recorder.Ended()), 1+maxTraced, "spans, one of the transaction")
	for i, r := range requests {
		expect.That(t, (r.Traceparent != "") == (i >= 5 && i < 5+maxTraced) && r.Traceparent != sampledTrace, "order %d: the store gets %q", i, r.Traceparent)
	}
	failed := 0
	for _, span := range recorder.Ended() {
		if span.Status().Description == "the store failed" {
			failed++
		}
		if span.Name() != tracing.Close {
			continue
		}
		above, linked := batch.TraceID().String(), tracing.TraceID(sampledTrace)
		if links := span.Links(); span.SpanContext().TraceID().String() != above || len(links) != 1 || links[0].SpanContext.TraceID().String() != linked {
			t.Errorf("the span is %v with the links %v", span.SpanContext(), links)
		}
	}
	expect.Equal(t, failed, 2, "spans with the error of the transaction, its own and that of the order without a verdict")
}

// The store gets no trace context of an order whose trace is not made here.
func TestTransaction_WithoutTracedOrdersAllocatesNothing(t *testing.T) {
	s, requests, outcomes := &transactions{}, make([]orderclose.CloseRequest, 3), make([]orderclose.Outcome, 3)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		for i := range requests {
			requests[i].Traceparent = s.tracer.Sampled(sampledTrace)
		}
		_, traced := s.trace(ctx, requests)
		traced.end(outcomes, nil)
	}); n > 0 || requests[0].Traceparent != "" {
		t.Errorf("%v allocations, the store gets %q", n, requests[0].Traceparent)
	}
}
