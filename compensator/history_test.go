package compensator

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

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// fakeHistory is the control topic. While it fails, it accepts no record.
type fakeHistory struct {
	mu     sync.Mutex
	fails  error
	sweeps []wire.Sweep
}

func (h *fakeHistory) Append(_ context.Context, topic string, partition int, messages []wire.Message) (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fails != nil {
		return time.Time{}, h.fails
	}
	for _, m := range messages {
		s, err := wire.DecodeSweep(m.Value)
		if err != nil || string(m.Key) != wire.KeySweep || topic != "control" || partition != 0 {
			return time.Time{}, fmt.Errorf("%s/%d: key %s: %w", topic, partition, m.Key, err)
		}
		h.sweeps = append(h.sweeps, s)
	}
	return time.Now(), nil
}

func (h *fakeHistory) setFailure(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails = err
}

// take returns the records and forgets them.
func (h *fakeHistory) take() []wire.Sweep {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.sweeps
	h.sweeps = nil
	return all
}

func (h *fakeHistory) history() *History {
	return &History{Appender: h, Topic: "control", Holder: "shop/17"}
}

// own is an Investigator with a cause of its own.
type own struct{ looker }

func (o *own) Begin(context.Context) (Investigation, error) { return o, nil }
func (o *own) Explain(_ context.Context, missed []orderclose.Order) []Miss {
	all := o.looker.Explain(context.Background(), missed)
	all[0].Cause = "the dog ate it"
	return all
}

func TestHistory_HasTheReportOfEachSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHistory{}
		s := newStore(25)
		s.bad, s.paid, s.slow = map[string]bool{"o0007": true}, map[string]bool{"o0008": true}, time.Second
		oldest := s.orders[0].Due.UTC()
		c := newCompensator(t, Options{Store: s, PageSize: 10, Grace: -1, Investigator: &own{}, History: h.history()})
		must.Get(c.Sweep(t.Context(), true))(t)
		got := h.take()
		expect.That(t, len(got) == 0, "a dry run is recorded: %+v", got)
		began := time.Now().UTC()
		r := must.Get(c.Sweep(t.Context(), false))(t)
		want := []wire.Sweep{{
			StartedAt: began, Cutoff: began, TookMillis: r.TookMillis, Lock: "none", Holder: "shop/17", Why: wire.SweepOnce, PeriodMillis: 3_600_000,
			Found: 25, Closed: 23, AlreadyPaid: 1, Failed: 1, Causes: map[string]int{"on_its_way": 20, "unknown": 3}, OldestDue: oldest,
			Failures: []wire.Failure{{OrderID: "o0007", Cause: "unexplained", Error: "no stock row", Times: 1, Since: began}},
		}}
		expect.Same(t, h.take(), want, "sweeps")
		expect.That(t, r.TookMillis != 0, "the sweep took no time")
	})
}

// brokenStore fails, or is paused.
type brokenStore struct {
	*fakeStore
	clock, closes error
}

func (s *brokenStore) Now(ctx context.Context) (time.Time, error) {
	if s.clock != nil {
		return time.Time{}, s.clock
	}
	return s.fakeStore.Now(ctx)
}

func (s *brokenStore) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if s.closes != nil {
		return nil, fmt.Errorf("%w: %w: %w", orderclose.ErrUnavailable, orderclose.ErrNoOrderAtFault, s.closes)
	}
	return s.fakeStore.CloseOrders(ctx, path, requests)
}

func TestHistory_HasSweepsThatFailed(t *testing.T) {
	for what, c := range map[string]struct {
		store *brokenStore
		want  string // the error of the record; empty: there is no record
	}{
		"the clock cannot be read": {&brokenStore{clock: errors.New("too many connections")}, "read the database clock: too many connections"},
		"the store is down":        {&brokenStore{closes: errors.New("refused")}, "refused"},
		"closing is paused":        {&brokenStore{closes: orderclose.ErrPaused}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fakeHistory{}
				c.store.fakeStore = newStore(3)
				_, err := newCompensator(t, Options{Store: c.store, Grace: -1, History: h.history()}).Sweep(t.Context(), false)
				got := h.take()
				switch {
				case err == nil:
					t.Error("the sweep did not fail")
				case c.want == "" && len(got) > 0:
					t.Errorf("it is recorded: %+v", got)
				case c.want == "":
				case len(got) != 1 || !strings.Contains(got[0].Error, c.want) || got[0].StartedAt.IsZero():
					t.Errorf("recorded %+v, want the error %q", got, c.want)
				}
			})
		})
	}
}

// A sweep that a stop of its process interrupts is recorded by that process.
func TestHistory_HasASweepThatWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHistory{}
		s := newStore(100)
		s.slow = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		_, _ = newCompensator(t, Options{Store: s, PageSize: 10, Grace: -1, History: h.history()}).Sweep(ctx, false)
		got := h.take()
		expect.That(t, len(got) == 1 && got[0].Closed == 40 && strings.Contains(got[0].Error, context.DeadlineExceeded.Error()), "recorded %+v", got)
	})
}

func TestHistory_SaysWhyASweepWasStarted(t *testing.T) {
	t.Run("period", func(t *testing.T) {
		h := &fakeHistory{}
		inFleet(t, &fakeStore{}, func(f *fleet) {
			f.start(Options{History: h.history()})
			f.start(Options{History: h.history()})
			time.Sleep(30 * time.Minute)
			h.take()
			time.Sleep(3 * time.Hour)
			if got := h.take(); len(got) != 3 || got[0].Why != wire.SweepPeriod || got[0].Lock != "held" {
				t.Errorf("in three hours: %+v; want three", got)
			}
		})
	})
}

// The append fails, and the sweep does not. It is recorded when the topic accepts records again.
func TestHistory_AFailedAppendFailsNoSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHistory{fails: errors.New("there is no leader")}
		var log strings.Builder
		c := newCompensator(t, Options{Store: newStore(3), Grace: -1, Period: time.Hour, History: h.history(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(150 * time.Minute)
		h.setFailure(nil)
		time.Sleep(2 * time.Minute)
		cancel()
		expect.NoError(t, <-done)
		swept := strings.Count(log.String(), "msg=swept")
		if got := h.take(); swept < 3 || len(got) != swept || got[0].Closed != 3 || got[0].Error != "" || !got[0].StartedAt.Before(got[1].StartedAt) {
			t.Errorf("of %d sweeps are recorded %+v; want all, the first one first", swept, got)
		}
		n := strings.Count(log.String(), "sweep not recorded")
		expect.That(t, n == swept && strings.Contains(log.String(), "there is no leader"), "%d log lines, want one for each sweep:\n%s", n, log.String())
	})
}

func TestHistory_KeepsFewRecordsThatCannotBeAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHistory{fails: errors.New("there is no leader")}
		c := newCompensator(t, Options{Store: newStore(0), History: h.history()})
		for range 3 * maxUnrecorded {
			time.Sleep(time.Second)
			must.Get(c.Sweep(t.Context(), false))(t)
		}
		h.setFailure(nil)
		last := time.Now()
		must.Do(t, c.recorder.flush(t.Context()))
		got := h.take()
		expect.That(t, len(got) == maxUnrecorded && got[maxUnrecorded-1].StartedAt.Equal(last), "%d are recorded, want the last %d", len(got), maxUnrecorded)
	})
}
