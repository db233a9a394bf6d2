package pipeline

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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/backlog"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/deadletters"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestMetrics_HaveTheDocumentedNamesAndValues(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	r := testkit.NewMetrics()
	m := must.Get(newMetrics(r))(t)
	expect.Equal(t, r.Series("dead_letters_open")+r.Series("dead_letters_read_timestamp_seconds"), 0, "series of dead letters before the topic was read")
	m.Breaker("close", "closed")
	for name, want := range map[string]int{"call_seconds": 3, "calls_refused_total": 1, "calls_failing_since_timestamp_seconds": 1, "payment_answers_total": 4} {
		expect.Equal(t, r.Series(name), want, "%s series at 0", name)
	}
	m.Breaker("close", "open")
	m.Called("close", "timeout", 3*time.Second)
	m.Called("close", "refused", 0)
	m.CallLimit("close", 500*time.Millisecond)
	m.CallsFailing("close", now)
	m.PaymentAnswers("unknown", 3)
	m.Waiting(backlog.Status{At: now, Topics: []backlog.TopicStatus{{Topic: "gone"}}})
	due := now.Add(time.Hour)
	m.Waiting(backlog.Status{At: now, Topics: []backlog.TopicStatus{
		{Topic: "delay_5m", Waiting: 7, Partitions: []backlog.PartitionStatus{{Overdue: 2}, {Overdue: 9, FarthestDue: due}}},
		{Topic: "delay_1m", Problem: "no leader"},
	}})
	m.Delays(orderclose.Delays{Default: time.Hour, ByCategory: map[string]time.Duration{"gone": time.Minute}})
	byCategory := map[string]time.Duration{"virtual": 1500 * time.Millisecond, "default": time.Minute}
	m.Delays(orderclose.Delays{Default: 30 * time.Minute, ByCategory: byCategory, Rules: []orderclose.Rule{
		{Match: orderclose.Match{Attributes: map[string][]string{"payment": {"cash", "card"}}}, After: time.Minute}, {Grace: time.Second},
	}})
	expect.Equal(t, r.Series("delay_seconds"), 4, "series of delay_seconds, those of the last file")
	m.DeadLettersOpen(deadletters.State{Open: map[string]int{"bad_due": 2}, Oldest: now, At: now})
	m.OverdueOrders(backlog.OverdueOrders{At: now, Orders: 9, Categories: map[string]int64{"gone": 9}})
	m.OverdueOrders(backlog.OverdueOrders{
		At: now, Orders: 4, Paused: 3, Old: 21, Oldest: now.Add(-time.Minute), Categories: map[string]int64{"default": 0, "ticket": 4},
	})
	for _, c := range []struct {
		name, label, value string
		want               float64
	}{
		{"breaker_state", "endpoint", "close", 2},
		{"call_seconds", "result", "timeout", 1},
		{"calls_refused_total", "endpoint", "close", 1},
		{"call_timeout_seconds", "endpoint", "close", 0.5},
		{"calls_failing_since_timestamp_seconds", "endpoint", "close", 1.7e9},
		{"payment_answers_total", "answer", "unknown", 3},
		{"waiting_records", "topic", "delay_5m", 7},
		{"waiting_overdue_seconds", "topic", "delay_5m", 9},
		{"waiting_farthest_due_seconds", "topic", "delay_5m", 3600},
		{"delay_seconds", "category", "default", 1800},
		{"delay_seconds", "category", "virtual", 1.5},
		{"delay_seconds", "category", "category default", 60},
		{"delay_seconds", "category", "rule payment cash or card", 60},
		{"dead_letters_open", "cause", "bad_due", 2},
		{"overdue_orders", "category", "ticket", 4},
		{"overdue_orders", "category", "default", 0},
	} {
		expect.Equal(t, r.Value(c.name, c.label, c.value), c.want, "%s{%s=%q}", c.name, c.label, c.value)
	}
	for _, name := range []string{"waiting_records", "waiting_overdue_seconds", "waiting_farthest_due_seconds"} {
		expect.Equal(t, r.Series(name), 1, "series of %s, that of the only topic that was checked", name)
	}
	expect.Equal(t, r.Value("waiting_unseen"), 1, "topics that were not seen")
	for _, name := range []string{"dead_letters_oldest_open_timestamp_seconds", "dead_letters_read_timestamp_seconds"} {
		expect.Equal(t, r.Value(name), 1.7e9, "%s", name)
	}
	paused, overdue, categories := r.Value("overdue_orders_paused"), r.Value("overdue_orders_oldest_seconds"), r.Series("overdue_orders")
	expect.That(t, paused == 3 && overdue == 60 && categories == 2, "%v are paused, the oldest for %v s, in %d categories", paused, overdue, categories)
	expect.Equal(t, r.Value("overdue_orders_old"), 21, "old orders")
	m.Paused([]pausing.Pause{{Category: "virtual"}})
	for orders, want := range map[string]float64{"all": 0, "category": 1} {
		expect.Equal(t, r.Value("paused", "orders", orders), want, "paused orders: %s", orders)
	}
	m.LatePayments(&store.LateSummary{Unresolved: 2, Oldest: now})
	n, oldest := r.Value("late_payments_unresolved"), r.Value("late_payments_oldest_timestamp_seconds")
	expect.That(t, n == 2 && oldest == 1.7e9, "%v late payments, the oldest found at %v", n, oldest)
	m.LatePayments(&store.LateSummary{})
	expect.Equal(t, r.Value("late_payments_unresolved")+r.Value("late_payments_oldest_timestamp_seconds"), 0, "late payments, and when the oldest was found")
	m.LatePayments(nil)
	expect.Equal(t, r.Series("late_payments_unresolved")+r.Series("late_payments_oldest_timestamp_seconds"), 0, "late_payments series that another process counts")
	m.OverdueOrders(backlog.OverdueOrders{})
	for _, name := range []string{"overdue_orders", "overdue_orders_paused", "overdue_orders_oldest_seconds", "overdue_orders_old"} {
		expect.Equal(t, r.Series(name), 0, "series of %s after that", name)
	}
}

// TestWriteProbe_ReportsHowLongTheWritesFail: a failing probe reports for how long the writes have failed. No second probe starts while one hangs.
func TestWriteProbe_ReportsHowLongTheWritesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		trying := 0
		ctx, cancel := context.WithCancel(t.Context())
		var reports []string
		try := func(context.Context) error {
			if trying++; trying > 1 {
				t.Error("two probes at once")
			}
			defer func() { trying-- }()
			if now := time.Since(began); now < 40*time.Second || now > 90*time.Second {
				return nil
			}
			time.Sleep(5 * time.Second) // the store's own limit
			return errors.New("read-only")
		}
		report := func(failing time.Duration, err error) {
			if reports = append(reports, fmt.Sprintf("%v %v", failing, err)); len(reports) == 6 {
				cancel()
			}
		}
		probeWrites(ctx, slog.New(slog.DiscardHandler), try, report)
		want := []string{"0s <nil>", "0s <nil>", "0s read-only", "20s read-only", "40s read-only", "0s <nil>"}
		expect.That(t, slices.Equal(reports, want), "got %q, want %q", reports, want)
	})
}

// triedStore answers the questions of tryWrites.
type triedStore struct{ tables, refuses, readOnly, writable error }

func (s *triedStore) CheckTables(context.Context) error { return s.tables }
func (s *triedStore) Refuses() error                    { return s.refuses }
func (s *triedStore) ClosedWithin(time.Duration) bool   { return false }
func (s *triedStore) NotReadOnly(context.Context) error { return s.readOnly }
func (s *triedStore) Writable(context.Context) error    { return s.writable }

// A user with SUPER writes on a read-only server, and there the Store closes nothing. Definitions of tables that cannot be read refuse no write.
func TestWriteProbe_FailsWhileTheStoreClosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		misfit, slow, readOnly := &store.MappingError{}, errors.New("slow"), errors.New("read-only")
		db := &triedStore{}
		try := tryWrites(db)
		for i, step := range []struct {
			db   triedStore
			want error
		}{{triedStore{tables: slow}, nil}, {triedStore{refuses: misfit}, misfit}, {triedStore{}, nil},
			{triedStore{readOnly: readOnly}, readOnly}, {triedStore{writable: slow}, slow}, {triedStore{}, nil}} {
			*db = step.db
			for range 3 {
				expect.Is(t, try(t.Context()), step.want, "the answer of step %d", i)
				time.Sleep(writeProbeInterval)
			}
			time.Sleep(tablesInterval)
		}
	})
}

func TestNew_ItsOwnRegistryHasTheRuntimeAndTheProcess(t *testing.T) {
	a := must.Get(New(Options{Config: config.Default(), Store: sweptStore{}}))(t)
	defer a.Close()
	_, body := get(t, a.Handler(false), "/metrics")
	for _, want := range []string{"go_goroutines ", "go_memstats_heap_inuse_bytes ", "process_open_fds ", "process_cpu_seconds_total "} {
		expect.That(t, strings.Contains(body, "\n"+want), "no %s", want)
	}
}

// The program registers them before or after New, under labels of its own.
func TestNew_LeavesTheRuntimeToAProgramWithARegistry(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector())
	a := must.Get(New(Options{Config: config.Default(), Store: sweptStore{}, Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shop": "a"}, r)}))(t)
	defer a.Close()
	r.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
