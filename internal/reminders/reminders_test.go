package reminders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// waitingOrders are unpaid orders in memory, and the reminders that were written.
type waitingOrders struct {
	mu     sync.Mutex
	orders []orderclose.Order
	locked string   // an order that a payment locks
	broken []string // orders whose reminders the database refuses
	calls  int      // of Remind
	fails  bool
	sent   map[string]time.Duration // by order
	log    []string                 // order, reminder, and when it was written after the begin
	began  time.Time
	reads  int
	done   time.Time
	rules  []orderclose.Rule
	slow   time.Duration // how long a write takes
	ahead  time.Duration // how far the local clock is ahead
}

func (w *waitingOrders) delays() orderclose.Delays {
	w.mu.Lock()
	defer w.mu.Unlock()
	return orderclose.Delays{Rules: w.rules}
}

func (w *waitingOrders) reload(rules []orderclose.Rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = rules
}

func (w *waitingOrders) Now(context.Context) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails {
		return time.Time{}, errors.New("no answer")
	}
	return time.Now().Add(-w.ahead), nil
}

func (w *waitingOrders) DueBetween(_ context.Context, from, to time.Time, after orderclose.Order, limit int) (page []orderclose.Order, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	for _, o := range w.orders {
		if !o.Due.Before(from) && !o.Due.After(to) && cmp.Or(o.Due.Compare(after.Due), cmp.Compare(o.ID, after.ID)) > 0 && len(page) < limit {
			page = append(page, o)
		}
	}
	return page, nil
}

func (w *waitingOrders) Remind(ctx context.Context, reminders []store.Reminder) (late []time.Duration, locked int, err error) {
	unsent := func(r store.Reminder) bool { _, sent := w.sent[r.ID]; return !sent }
	if w.slow > 0 && slices.ContainsFunc(reminders, unsent) && !retry.Sleep(ctx, w.slow) {
		return nil, 0, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	for _, r := range reminders {
		if _, sent := w.sent[r.ID]; !sent && slices.Contains(w.broken, r.ID) {
			return nil, 0, errors.New("data too long") // one transaction
		}
	}
	for _, r := range reminders {
		switch before, sent := w.sent[r.ID]; {
		case r.ID == w.locked:
			locked++
		case !sent || before > r.Before:
			w.sent[r.ID] = r.Before
			w.log = append(w.log, fmt.Sprintf("%s %v @%v", r.ID, r.Before, time.Since(w.began).Round(time.Second)))
			late = append(late, time.Since(r.Deadline.Add(-r.Before)))
		}
	}
	return late, locked, nil
}

func (w *waitingOrders) ForgetReminders(context.Context, time.Time) error { return nil }

func (w *waitingOrders) report(_ []time.Duration, done time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = done
}

// becomes sets whether the database fails, and which order is locked.
func (w *waitingOrders) becomes(fails bool, locked string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails, w.locked = fails, locked
}

// inReminders runs a test in a bubble, with orders a, b, … that are due in these times from now.
func inReminders(t *testing.T, rules []orderclose.Rule, due []time.Duration, test func(w *waitingOrders, start func() (stop func()))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &waitingOrders{sent: map[string]time.Duration{}, began: time.Now(), rules: rules}
		for i, in := range due {
			w.orders = append(w.orders, orderclose.Order{ID: string(rune('a' + i)), CreatedAt: w.began.Add(-time.Hour), Due: w.began.Add(in)})
		}
		slices.SortFunc(w.orders, func(a, b orderclose.Order) int { return a.Due.Compare(b.Due) })
		test(w, func() func() {
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() {
				r := &writer{store: w, delays: w.delays, report: w.report, logger: slog.New(slog.DiscardHandler)}
				for ctx.Err() == nil {
					retry.Sleep(ctx, r.do(ctx))
				}
			})
			return func() { cancel(); running.Wait() }
		})
	})
}

// wantLog checks the reminders since the last check.
func (w *waitingOrders) wantLog(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Sort(w.log); !slices.Equal(w.log, want) {
		t.Errorf("reminders after %v: %q; want %q", time.Since(w.began), w.log, want)
	}
	w.log = nil
}

var twoReminders = []orderclose.Rule{{Grace: time.Minute, Remind: []time.Duration{10 * time.Minute, 2 * time.Minute}}}

func TestReminders_EachIsWrittenWithinTenSecondsOfItsTime(t *testing.T) {
	inReminders(t, twoReminders, []time.Duration{20*time.Minute + time.Second, 20*time.Minute + 9*time.Second}, func(w *waitingOrders, start func() func()) {
		defer start()()
		time.Sleep(9 * time.Minute)
		w.wantLog(t)
		time.Sleep(11 * time.Minute)
		w.wantLog(t, "a 10m0s @9m10s", "a 2m0s @17m10s", "b 10m0s @9m10s", "b 2m0s @17m10s")
		expect.That(t, !w.done.Before(time.Now().Add(-10*time.Second)), "complete up to %v", w.done)
	})
}

func TestReminders_AfterATimeWithoutProcessesTheNearestIsWritten(t *testing.T) {
	// Deadlines after the process has started: none, in 1 minute, in 5, in 9:59, in 12.
	due := []time.Duration{30 * time.Minute, 32 * time.Minute, 36 * time.Minute, 41*time.Minute - time.Second, 43 * time.Minute}
	inReminders(t, twoReminders, due, func(w *waitingOrders, start func() func()) {
		time.Sleep(30 * time.Minute)
		defer start()()
		w.wantLog(t, "b 2m0s @30m0s", "c 10m0s @30m0s", "d 10m0s @30m0s")
	})
}

func TestReminders_AFailureAndALockDelayThemOnly(t *testing.T) {
	inReminders(t, twoReminders, []time.Duration{20 * time.Minute, 21 * time.Minute, 23 * time.Minute}, func(w *waitingOrders, start func() func()) {
		defer start()()
		time.Sleep(8*time.Minute + 55*time.Second)
		w.becomes(true, "")
		time.Sleep(time.Minute)
		w.wantLog(t)
		w.becomes(false, "b")
		time.Sleep(time.Minute)
		w.wantLog(t, "a 10m0s @10m0s")
		behind := time.Since(w.done)
		expect.That(t, behind >= 30*time.Second, "complete up to %v ago, while an order is locked", behind)
		w.becomes(false, "")
		time.Sleep(time.Minute)
		w.wantLog(t, "b 10m0s @11m0s")
		time.Sleep(time.Minute)
		w.wantLog(t, "c 10m0s @12m0s")
	})
}

// The reminders of two orders cannot be written. The others are, in the same round; the alert tells of the two until their deadline.
func TestReminders_AnOrderThatCannotBeRemindedKeepsNoOtherFromIt(t *testing.T) {
	inReminders(t, twoReminders, nil, func(w *waitingOrders, start func() func()) {
		for i := range 1100 {
			w.orders = append(w.orders, orderclose.Order{ID: fmt.Sprintf("o%04d", i), Due: w.began.Add(5 * time.Minute)})
		}
		w.broken = []string{"o0017", "o0600"}
		defer start()()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.mu.Lock()
		expect.Equal(t, len(w.log), 1098, "reminders")
		expect.That(t, w.done.Equal(w.began), "complete up to %v after the begin, want 0", w.done.Sub(w.began))
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		expect.That(t, time.Since(w.done) < 20*time.Second, "complete up to %v ago after the deadline", time.Since(w.done))
	})
}

func TestReminders_ADatabaseThatRefusesAllIsNotAskedForEach(t *testing.T) {
	inReminders(t, twoReminders, nil, func(w *waitingOrders, start func() func()) {
		for i := range 1100 {
			w.orders = append(w.orders, orderclose.Order{ID: fmt.Sprintf("o%04d", i), Due: w.began.Add(5 * time.Minute)})
			w.broken = append(w.broken, w.orders[i].ID)
		}
		defer start()()
		synctest.Wait()
		expect.AtMost(t, w.calls, remindTries+1, "calls of the first round")
	})
}

func TestReminders_OfTwoProcessesAreTheSame(t *testing.T) {
	inReminders(t, twoReminders, []time.Duration{20 * time.Minute}, func(w *waitingOrders, start func() func()) {
		defer start()()
		time.Sleep(4 * time.Second)
		defer start()()
		time.Sleep(30 * time.Minute)
		w.wantLog(t, "a 10m0s @9m0s", "a 2m0s @17m0s")
	})
}

func TestReminders_WithoutARuleTheDatabaseIsNotAsked(t *testing.T) {
	inReminders(t, []orderclose.Rule{{Grace: time.Minute}}, []time.Duration{time.Minute}, func(w *waitingOrders, start func() func()) {
		w.fails = true
		defer start()()
		time.Sleep(time.Hour)
		w.wantLog(t)
		expect.That(t, w.reads == 0 && w.done.IsZero(), "%d reads, complete up to %v", w.reads, w.done)
	})
}

func TestReminders_AThousandOrdersAreReadInPages(t *testing.T) {
	inReminders(t, twoReminders, nil, func(w *waitingOrders, start func() func()) {
		for i := range 1100 {
			w.orders = append(w.orders, orderclose.Order{ID: fmt.Sprintf("o%04d", i), Due: w.began.Add(5 * time.Minute)})
		}
		w.ahead = time.Minute
		defer start()()
		synctest.Wait()
		expect.That(t, len(w.log) == 1100 && w.done.Equal(w.began), "%d reminders, complete up to %v by the local clock", len(w.log), w.done)
	})
}

// A task of the holder that takes five minutes hangs, and ends the process.
func TestReminders_ARoundEndsSoonWhateverItHasToWrite(t *testing.T) {
	inReminders(t, twoReminders, nil, func(w *waitingOrders, _ func() func()) {
		for i := range 20_000 {
			w.orders = append(w.orders, orderclose.Order{ID: fmt.Sprintf("%06d", i), CreatedAt: w.began.Add(-time.Hour), Due: w.began.Add(11 * time.Minute)})
		}
		w.slow = 10 * time.Second // for 500 orders
		r := &writer{store: w, delays: w.delays, report: w.report, logger: slog.New(slog.DiscardHandler)}
		for len(w.sent) < len(w.orders) && time.Since(w.began) < time.Hour {
			began := time.Now()
			r.do(context.Background())
			expect.That(t, time.Since(began) <= 4*time.Minute, "a round takes %v", time.Since(began))
		}
		expect.Equal(t, len(w.sent), len(w.orders), "reminded orders")
	})
}

func TestReminderOf_ChoosesTheLastOfItsRule(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	delays := orderclose.Delays{Rules: []orderclose.Rule{
		{Match: orderclose.Match{Attributes: map[string][]string{"method": {"transfer"}}}, Never: true},
		{Match: orderclose.Match{Categories: []string{"virtual"}}, Remind: []time.Duration{time.Minute}},
		{Match: orderclose.Match{Categories: []string{"book"}}, Grace: 5 * time.Minute, Remind: []time.Duration{10 * time.Minute, 2 * time.Minute}},
	}}
	for _, row := range []struct {
		category string
		in       time.Duration // until the due time
		age      time.Duration // 0: it is not known
		want     time.Duration // 0: no reminder
	}{
		{"virtual", time.Minute + time.Millisecond, 0, 0},
		{"virtual", time.Minute, 0, time.Minute},
		{"virtual", time.Millisecond, 0, time.Minute},
		{"virtual", 0, 0, 0},
		{"virtual", 30 * time.Second, 29 * time.Second, 0},
		{"virtual", 30 * time.Second, 30 * time.Second, time.Minute},
		{"book", 15*time.Minute + time.Millisecond, 0, 0},
		{"book", 15 * time.Minute, 0, 10 * time.Minute},
		{"book", 7*time.Minute + time.Millisecond, 0, 10 * time.Minute},
		{"book", 7 * time.Minute, 0, 2 * time.Minute},
		{"book", 7 * time.Minute, 3 * time.Minute, 2 * time.Minute},
		{"book", 5*time.Minute + time.Millisecond, 0, 2 * time.Minute},
		{"book", 5 * time.Minute, 0, 0}, // the customer's deadline
		{"toy", time.Minute, 0, 0},
		{"", time.Minute, 0, 0},
	} {
		o := orderclose.Order{ID: "a", Category: row.category, Due: now.Add(row.in)}
		if row.age > 0 {
			o.CreatedAt = now.Add(-row.age)
		}
		if row.category == "book" && row.age > 0 { // the longer reminder's time was before the order
			o.CreatedAt = now.Add(-time.Millisecond)
		}
		r, ok := reminderOf(delays, o, now)
		if want := row.want > 0; ok != want || ok && (r.Before != row.want || r.ID != "a") {
			t.Errorf("%s, due in %v, %v old: %v, %v; want %v", row.category, row.in, row.age, r.Before, ok, row.want)
		}
	}
	transfer := orderclose.Order{ID: "a", Category: "virtual", Due: now.Add(time.Second), Attributes: map[string]any{"method": "transfer"}}
	if _, ok := reminderOf(delays, transfer, now); ok {
		t.Error("a rule that does not match first has reminded")
	}
}

func TestRemindOffsets_AreThoseOfAllRules(t *testing.T) {
	for _, row := range []struct {
		rules []orderclose.Rule
		want  string
	}{
		{nil, "[] 10s"},
		{twoReminders, "[3m0s 11m0s] 10s"},
		{append(twoReminders, orderclose.Rule{Grace: 6 * time.Minute, Remind: []time.Duration{5 * time.Minute}}), "[3m0s 11m0s] 10s"},
		{[]orderclose.Rule{{Remind: []time.Duration{5 * time.Second}}}, "[5s] 2.5s"},
		{[]orderclose.Rule{{Remind: []time.Duration{time.Millisecond}}}, "[1ms] 500ms"},
	} {
		offsets, wait := remindOffsets(row.rules)
		expect.Equal(t, fmt.Sprint(offsets, wait), row.want, "the offsets and the wait")
	}
}

// A reload moves the reminders of all orders ten minutes earlier. Order a is due in less.
func TestReminders_NewRulesHoldForOrdersThatAreNearer(t *testing.T) {
	rules := []orderclose.Rule{{Remind: []time.Duration{2 * time.Minute}}}
	inReminders(t, rules, []time.Duration{8 * time.Minute, 30 * time.Minute}, func(w *waitingOrders, start func() func()) {
		defer start()()
		time.Sleep(time.Minute + 5*time.Second) // between two rounds
		w.reload([]orderclose.Rule{{Remind: []time.Duration{12 * time.Minute}}})
		time.Sleep(time.Minute)
		w.wantLog(t, "a 12m0s @1m10s")
	})
}
