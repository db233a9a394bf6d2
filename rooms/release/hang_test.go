package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// hanging is a stock service that does not answer for some SKUs.
type hanging struct {
	service
	on func(sku string) bool
}

func (h *hanging) Release(ctx context.Context, r Request) error {
	if h.on(r.SKU) {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.service.Release(ctx, r)
}

// Hanging events may be so many that the breaker opens. A few are proved to be at
// fault and become dead letters. Many look like a service in trouble, and most of
// them wait for a day. Other events wait for at most 15 minutes.
func TestWorker_HangingEventsDelayNoOthers(t *testing.T) {
	for _, bad := range []int{1, 3, 10} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, s := &eventLog{}, &hanging{on: func(sku string) bool { return sku == "stuck" }}
				var want []string
				for i := range bad {
					id := fmt.Sprintf("bad%02d", i)
					log.add(t, id, "stuck")
					want = append(want, id+" release_failed")
				}
				defer runWorker(t, log, s)()
				for i := range 60 { // one event a minute
					log.add(t, fmt.Sprintf("good%d", i), "ink")
					time.Sleep(time.Minute)
					if _, back := s.count(); back < i-15 { // which event is the probe is random
						t.Fatalf("after %d minutes %d of %d releases are made", i+1, back, i+1)
					}
				}
				got := log.causes()
				if bad > 3 { // how many of them are proved to be at fault is random
					want = slices.DeleteFunc(want, func(w string) bool { return !slices.Contains(got, w) })
				}
				if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
					t.Errorf("dead letters (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// An event that waits alone does not open the breaker, and is released when the
// service is back.
func TestWorker_AnOutageUsesUpNoAttemptOfASingleEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, back := &eventLog{}, time.Now().Add(3*time.Hour)
		s := &hanging{on: func(string) bool { return time.Now().Before(back) }}
		log.add(t, "a", "ink", "pen")
		metrics, began := testkit.NewMetrics(), time.Now()
		w := must.Get(New(Options{Log: log, Releaser: s, Group: "g", EventsTopic: "events", DeadLetterTopic: "dead", Registerer: metrics}))(t)
		defer testkit.Start(t, w.Run)()
		time.Sleep(2 * time.Hour)
		since := time.UnixMilli(int64(metrics.Value("calls_failing_since_timestamp_seconds") * 1000))
		if since.Before(began) || since.After(began.Add(10*time.Second)) {
			t.Errorf("calls fail since %v, reported since %v", began, since)
		}
		time.Sleep(time.Hour + 2*time.Minute)
		if since := metrics.Value("calls_failing_since_timestamp_seconds"); since != 0 {
			t.Errorf("calls are reported to fail since %v", since)
		}
		if _, released := s.count(); released != 2 || len(log.causes()) > 0 {
			t.Errorf("%d released, dead letters %v", released, log.causes())
		}
	})
}

// The breaker stays closed.
func TestWorker_ACallThatIsCancelledByAStopDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := must.Get(New(Options{Log: &eventLog{}, Releaser: &hanging{on: func(string) bool {
			return true
		}}, Group: "g", EventsTopic: "e", DeadLetterTopic: "d"}))(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var states []string
		for calls := 0; calls < 2*breakerAfter; { // after the stop some calls are not made
			made, err := w.call(ctx, Request{})
			if made {
				calls++
			}
			if ctx.Err() == nil || !made && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(made, err)
			}
			states = append(states, w.breaker.State().String())
		}
		if slices.Contains(states, "open") {
			t.Errorf("the breaker was %v", states)
		}
	})
}

// deaf ignores its context for one SKU.
type deaf struct {
	service
	release chan struct{}
}

func (d *deaf) Release(ctx context.Context, r Request) error {
	if r.SKU == "stuck" {
		<-d.release
	}
	return d.service.Release(ctx, r)
}

// Options.Parallel such calls would end all releases, while the loops show signs of life.
func TestWorker_ACallThatIgnoresItsContextCallsOnHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s, hangs := &eventLog{}, &deaf{release: make(chan struct{})}, make(chan string, 100)
		log.add(t, "a", "stuck")
		w := must.Get(New(Options{Log: log, Releaser: s, Group: "g", EventsTopic: "events", DeadLetterTopic: "dead", OnHang: func(why string) { hangs <- why }}))(t)
		stop := testkit.Start(t, w.Run)
		time.Sleep(time.Minute)
		if len(hangs) != 1 {
			t.Errorf("OnHang was called %d times, want once", len(hangs))
		}
		close(s.release)
		stop()
	})
}

func TestWorker_APanicOfTheReleaserIsTheFaultOfItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logs := &eventLog{}, &testkit.LogBuffer{}
		s := &service{answer: func(r Request) error {
			if r.SKU == "poison" {
				panic("no such SKU")
			}
			return nil
		}}
		log.add(t, "a", "poison")
		log.add(t, "b", "ink")
		w := must.Get(New(Options{Log: log, Releaser: s, Group: "g", EventsTopic: "events", DeadLetterTopic: "dead",
			Logger: slog.New(slog.NewTextHandler(logs, nil))}))(t)
		defer testkit.Start(t, w.Run)()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a release_failed"}, log.causes()); diff != "" || log.doneBelow() != 2 {
			t.Errorf("done below %d, dead letters (-want +got):\n%s", log.doneBelow(), diff)
		}
		if out := logs.String(); !strings.Contains(out, "no such SKU") || !strings.Contains(out, "hang_test.go") {
			t.Errorf("the log has no stack:\n%s", out)
		}
	})
}
