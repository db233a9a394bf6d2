package producer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// fakeAppender answers as its function says and records the appends.
type fakeAppender struct {
	answer func(ctx context.Context, topic string) error
	topics []string
	last   wire.Message
}

func (f *fakeAppender) Append(ctx context.Context, topic string, m wire.Message) error {
	f.topics, f.last = append(f.topics, topic), m
	if f.answer != nil {
		return f.answer(ctx, topic)
	}
	return nil
}

func newProducer(t *testing.T, a Appender) *Producer {
	t.Helper()
	p := must.Get(New(Options{Appender: a, TopicsFile: "../topics.yaml"}))(t)
	t.Cleanup(p.Close)
	return p
}

// A bucket may be in topics.yaml before its topic exists.
func TestSchedule_LeavesOutABucketWithoutATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			delay time.Duration
			lacks []string // for the first minute
			want  []string // where it tries
		}{
			"a bucket":        {5 * time.Minute, []string{"delay_5m"}, []string{"delay_5m", "delay_1m"}},
			"two buckets":     {5 * time.Minute, []string{"delay_5m", "delay_1m"}, []string{"delay_5m", "delay_1m", "delay_10s"}},
			"the smallest":    {5 * time.Second, []string{"delay_10s"}, []string{"delay_10s", "delay_1m"}},
			"the close topic": {0, []string{"order-close"}, []string{"order-close", "order-close"}},
		} {
			began := time.Now()
			a := &fakeAppender{}
			a.answer = func(_ context.Context, topic string) error {
				if slices.Contains(c.lacks, topic) && (topic != "order-close" || time.Since(began) < 10*time.Millisecond) {
					return kafka.ErrNoTopic
				}
				return nil
			}
			order := orderclose.Order{ID: "o", CreatedAt: began, Due: began.Add(c.delay)}
			expect.NoError(t, newProducer(t, a).Schedule(t.Context(), order))
			expect.Same(t, a.topics, c.want, "%s", name)
		}
	})
}

func TestSchedule_PicksTheBucketWhenItProduces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for delay, want := range map[time.Duration]string{
			30 * time.Minute: "delay_30m", 29*time.Minute + 31*time.Second: "delay_30m", 29 * time.Minute: "delay_5m",
			5 * time.Minute: "delay_5m", time.Second: "delay_10s", 0: "order-close", -time.Hour: "order-close", 25 * 24 * time.Hour: "delay_12h",
		} {
			a := &fakeAppender{}
			order := orderclose.Order{ID: "o", CreatedAt: time.Now(), Due: time.Now().Add(delay)}
			expect.NoError(t, newProducer(t, a).Schedule(t.Context(), order))
			expect.Same(t, a.topics, []string{want}, "topics after a delay of %v", delay)
		}
	})
}

// TestOrderWith_AppliesRules: the due time is that of the close, the deadline that the customer sees is earlier and
// travels with the record, and an order that is never closed has no record.
func TestOrderWith_AppliesRules(t *testing.T) {
	pay := func(way string) map[string]any { return map[string]any{"pay": way} }
	of := func(way string) orderclose.Match {
		return orderclose.Match{Attributes: map[string][]string{"pay": {way}}}
	}
	a, tx := &fakeAppender{}, &fakeTx{}
	p := must.Get(New(Options{Appender: a, TopicsFile: "../topics.yaml", Delays: orderclose.Delays{Rules: []orderclose.Rule{
		{Match: of("bank"), Never: true}, {Match: of("card"), After: time.Hour, Grace: 5 * time.Minute},
	}}}))(t)
	defer p.Close()
	created := time.Now().UTC().Truncate(time.Second)
	order := p.OrderWith("o", orderclose.Facts{CreatedAt: created, Categories: []string{"virtual"}, Attributes: pay("card")})
	want := orderclose.Order{ID: "o", Category: "virtual", CreatedAt: created, Due: created.Add(time.Hour), Deadline: created.Add(55 * time.Minute),
		Attributes: pay("card")}
	expect.Same(t, order, want, "the order")
	must.Do(t, p.Schedule(t.Context(), order))
	if r, err := a.last.Decode(); err != nil || !cmp.Equal(r.Order, want) {
		t.Errorf("the record has %+v, %v", r.Order, err)
	}
	plain := p.Order("o", created)
	expect.That(t, plain.Due.Equal(created.Add(orderclose.DefaultDelay)) && plain.Deadline.Equal(plain.Due), "an order without attributes: %+v", plain)

	never := p.OrderWith("never", orderclose.Facts{CreatedAt: created, Attributes: pay("bank")})
	expect.That(t, never.Due.Equal(orderclose.NeverDue) && never.Deadline.IsZero(), "an order that is never closed: %+v", never)
	sent := len(a.topics)
	if err := errors.Join(p.Schedule(t.Context(), never), newOutbox(t, OutboxOptions{Dialect: MySQL}).Add(t.Context(), tx, never)); err != nil ||
		len(a.topics) > sent || tx.query != "" {
		t.Errorf("%v; its record was sent to %v and added by %q", err, a.topics[sent:], tx.query)
	}
	never.ID = ""
	for _, err := range []error{p.Schedule(t.Context(), never), newOutbox(t, OutboxOptions{Dialect: MySQL}).Add(t.Context(), tx, never)} {
		expect.That(t, errors.Is(err, orderclose.ErrEmptyID), "without an id: %v", err)
	}
}

func TestSchedule_DoesNotChangeTheDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAppender{}
		order := orderclose.Order{ID: "o", Category: "virtual", CreatedAt: time.Now(), Due: time.Now().Add(77 * time.Second)}
		must.Do(t, newProducer(t, a).Schedule(t.Context(), order))
		r, err := a.last.Decode()
		expect.That(t, err == nil && r.Order.Due.Equal(order.Due) && r.Release.Equal(order.Due), "%+v, %v; want due %v", r, err, order.Due)
	})
}

func TestSchedule_RejectsInvalidOrdersAndSendsNothing(t *testing.T) {
	due := time.Now().Add(time.Minute)
	for name, c := range map[string]struct {
		order orderclose.Order
		want  error
	}{
		"no id":         {orderclose.Order{Due: due}, orderclose.ErrEmptyID},
		"long id":       {orderclose.Order{ID: strings.Repeat("x", 65), Due: due}, orderclose.ErrLongID},
		"no due":        {orderclose.Order{ID: "o"}, orderclose.ErrNoDue},
		"due in a year": {orderclose.Order{ID: "o", Due: time.Now().Add(365 * 24 * time.Hour)}, orderclose.ErrDueTooFar},
	} {
		a := &fakeAppender{}
		err := newProducer(t, a).Schedule(t.Context(), c.order)
		refused := (*orderclose.OrderError)(nil)
		expect.That(t, errors.Is(err, c.want) && errors.As(err, &refused) && refused.Hint != "", "%s: %v, want %v", name, err, c.want)
		expect.That(t, len(a.topics) == 0, "%s was sent to %v", name, a.topics)
	}
}

func TestSchedule_PicksTheBucketAgainAfterAnUnansweredAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAppender{}
		a.answer = func(ctx context.Context, topic string) error {
			if topic != "delay_10s" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		order := orderclose.Order{ID: "o", CreatedAt: time.Now(), Due: time.Now().Add(58 * time.Second)}
		must.Do(t, newProducer(t, a).Schedule(t.Context(), order))
		if first, last := a.topics[0], a.topics[len(a.topics)-1]; first != "delay_1m" || last != "delay_10s" {
			t.Errorf("tried %v", a.topics)
		}
	})
}

func TestSchedule_EndsWithItsContextAndReturnsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("the broker is away")
		a := &fakeAppender{answer: func(context.Context, string) error { return away }}
		begin := time.Now()
		err := newProducer(t, a).Schedule(t.Context(), orderclose.Order{ID: "o", Due: time.Now().Add(time.Minute)})
		expect.That(t, errors.Is(err, away) && errors.Is(err, context.DeadlineExceeded), "got %v", err)
		expect.AtMost(t, time.Since(begin), DefaultTimeout, "the time until it gave up")
		expect.That(t, len(a.topics) >= 30, "%d attempts in half a minute, want one a second at least", len(a.topics))
	})
}

func TestSchedule_DoesNotRetryRecordsThatKafkaRejectsForGood(t *testing.T) {
	a := &fakeAppender{answer: func(context.Context, string) error { return ErrRefused }}
	err := newProducer(t, a).Schedule(t.Context(), orderclose.Order{ID: "o", Due: time.Now().Add(time.Minute)})
	expect.That(t, errors.Is(err, ErrRefused) && len(a.topics) == 1, "%v after %d tries", err, len(a.topics))
}

func TestOrder_AnUnknownCategoryGetsTheDefaultDelayAndIsReported(t *testing.T) {
	var unknown []string
	p := newProducer(t, &fakeAppender{})
	p.o.OnUnknownCategory = func(c string) { unknown = append(unknown, c) }
	created := time.UnixMilli(1_700_000_000_000)
	expect.Equal(t, p.Order("o", created, "unheard-of").Due.Sub(created), 30*time.Minute, "the delay of a category that is not configured")
	if o := p.Order("o", created, "physical", "virtual"); o.Due.Sub(created) != 5*time.Minute || o.Category != "virtual" {
		t.Errorf("%s, due after %v; want the shortest", o.Category, o.Due.Sub(created))
	}
	expect.Same(t, unknown, []string{"unheard-of"}, "unknown categories")
}

func TestNew_RejectsInvalidOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "topics.yaml")
	must.Do(t, os.WriteFile(file, []byte("buckets: [5m, 300s]\n"), 0o600))
	for _, o := range []Options{{}, {TopicsFile: file}, {TopicsFile: "../topics.yaml"}} { // the last has no brokers
		_, err := New(o)
		expect.That(t, err != nil, "accepted %+v", o)
	}
}
