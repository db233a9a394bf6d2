package send

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var errDown = errors.New("the broker is down")

// fakeLog answers requests by its function. Records with the key "a" are in partition 0, with "b" in 1, …
type fakeLog func(ctx context.Context, topic string, partition int, records []wire.RawRecord) error

func (f fakeLog) Idempotent(func(int)) wire.AppendFunc {
	return func(ctx context.Context, topic string, p int, records []wire.RawRecord) (time.Time, error) {
		return time.UnixMilli(1), f(ctx, topic, p, records)
	}
}

func group(_ context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
	if topic == "missing" {
		return nil, errDown
	}
	parts := map[int][]wire.RawRecord{}
	for _, r := range records {
		p := int(r.Key()[0] - 'a')
		parts[p] = append(parts[p], r)
	}
	return parts, nil
}

func newSender(f fakeLog) *Sender {
	return New(Options{Producers: f, Group: group, FinishTime: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
}

func records(keys ...string) []wire.RawRecord {
	all := make([]wire.RawRecord, len(keys))
	for i, key := range keys {
		m := wire.Message{Offset: int64(i), Key: []byte(key)}
		all[i] = m.Raw()
	}
	return all
}

func offsets(records []wire.RawRecord) []int64 {
	all := []int64{}
	for _, r := range records {
		all = append(all, r.Offset)
	}
	return all
}

// A request that is cut off may have been written. So none begins that a slow broker cannot answer in
// time.
func TestAppend_CutsNoRequestOfASlowBrokerOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := 0
		s := newSender(func(ctx context.Context, _ string, _ int, part []wire.RawRecord) error {
			select {
			case <-ctx.Done():
				t.Errorf("a request was cut off after %d", answered)
				return ctx.Err()
			case <-time.After(2800 * time.Millisecond):
				answered++
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), MaxTime)
		defer cancel()
		var all []wire.RawRecord
		for range 5 {
			m := wire.Message{Key: []byte("key"), Value: make([]byte, 800_000)}
			all = append(all, m.Raw())
		}
		r := s.Append(ctx, Destination{"target", 0}, all)
		expect.That(t, len(r.Acked) == 3 && answered == 3 && len(r.Left) == 2, "%d acked, %d answered, %d left; want 3, 3, 2", len(r.Acked), answered, len(r.Left))
	})
}

// Whatever Kafka refuses, and whenever it fails, each record is acked, refused or left. The
// records that are left are the last ones, and nothing is requested after the failure.
func TestAppend_AccountsForEachRecordInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(t, "records")
		bad := map[int64]bool{}
		all := records(slices.Repeat([]string{"key"}, n)...)
		for i := range all {
			bad[int64(i)] = rapid.IntRange(0, 9).Draw(t, "fate") == 0
		}
		failAt := rapid.IntRange(1, 100).Draw(t, "failing request")
		requests := 0
		var handled []int64 // acked, or refused alone
		r := newSender(func(_ context.Context, _ string, _ int, part []wire.RawRecord) error {
			requests++
			switch {
			case requests > failAt:
				t.Fatalf("request %d, after request %d failed", requests, failAt)
			case requests == failAt:
				return errDown
			case slices.ContainsFunc(part, func(r wire.RawRecord) bool { return bad[r.Offset] }):
				if len(part) == 1 {
					handled = append(handled, part[0].Offset)
				}
				return wire.ErrRefused
			}
			handled = append(handled, offsets(part)...)
			return nil
		}).Append(t.Context(), Destination{"target", 0}, all)
		if (r.Err == nil) != (requests < failAt) || r.Err != nil && !errors.Is(r.Err, errDown) || r.Err == nil && len(r.Left) > 0 {
			t.Fatalf("after %d requests %d are left: %v", requests, len(r.Left), r.Err)
		}
		diff := cmp.Diff(offsets(all), append(append([]int64{}, handled...), offsets(r.Left)...))
		must.That(t, diff == "", "handled and left (-want +got):\n%s", diff)
		accounted := len(r.Left) + len(r.Refused)
		for _, a := range r.Acked {
			accounted += len(a.Records)
		}
		for _, refused := range r.Refused {
			must.That(t, bad[refused.Record.Offset] && errors.Is(refused.Err, wire.ErrRefused), "record %d was refused: %v", refused.Record.Offset, refused.Err)
		}
		must.That(t, accounted == n, "%d of %d records are acked, refused or left", accounted, n)
	})
}

// A request that is refused after the context has ended is not halved.
func TestAppend_StartsNothingAfterItsContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	requests := 0
	s := newSender(func(context.Context, string, int, []wire.RawRecord) error {
		cancel()
		requests++
		return wire.ErrRefused
	})
	for range 2 {
		r := s.Append(ctx, Destination{"target", 0}, records("a", "b"))
		expect.That(t, len(r.Left) == 2 && requests == 1, "%d left after %d requests, want the one that was in flight", len(r.Left), requests)
	}
}

// After a cancel the request in flight may take a little longer, and after the deadline not.
func TestAppend_ARequestInFlightOutlastsACancel(t *testing.T) {
	for _, c := range []struct {
		cancel, deadline, want time.Duration
	}{{time.Second, time.Hour, 3 * time.Second}, {time.Hour, 5 * time.Second, 5 * time.Second}, {4 * time.Second, 5 * time.Second, 5 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			defer cancel()
			time.AfterFunc(c.cancel, cancel)
			began := time.Now()
			r := newSender(func(ctx context.Context, _ string, _ int, _ []wire.RawRecord) error {
				<-ctx.Done()
				return ctx.Err()
			}).Append(ctx, Destination{"target", 0}, records("a"))
			took := time.Since(began)
			expect.That(t, took == c.want && len(r.Left) == 1, "%v, %d left; want %v and 1", took, len(r.Left), c.want)
		})
	}
}

// The caller sends the records again, unless it was cancelled.
func TestAppend_CountsRecordsThatMayBeWrittenTwice(t *testing.T) {
	for _, c := range []struct {
		cancel time.Duration
		want   int
	}{{time.Hour, 2}, {time.Second, 0}} {
		synctest.Test(t, func(t *testing.T) {
			repeated := 0
			s := New(Options{Repeated: func(records int) {
				repeated += records
			}, Logger: slog.New(slog.DiscardHandler), Producers: fakeLog(func(ctx context.Context, _ string, _ int, _ []wire.RawRecord) error {
				<-ctx.Done()
				return errors.Join(wire.ErrUnanswered, ctx.Err())
			})})
			ctx, cancel := context.WithTimeout(t.Context(), MaxTime)
			defer cancel()
			time.AfterFunc(c.cancel, cancel)
			s.Append(ctx, Destination{"target", 0}, records("a", "b"))
			expect.Equal(t, repeated, c.want, "cancelled after %v counted", c.cancel)
		})
	}
}

// If the answer to the small request is missing, few records are written twice.
func TestAppend_AfterAFailureTheFirstRequestIsSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working := false
		var sizes []int
		s := newSender(func(_ context.Context, _ string, _ int, part []wire.RawRecord) error {
			if sizes = append(sizes, len(part)); !working {
				return errDown
			}
			return nil
		})
		for range 2 {
			r := s.Append(t.Context(), Destination{"target", 0}, records(slices.Repeat([]string{"a"}, 500)...))
			if again := s.Append(t.Context(), Destination{"target", 0}, r.Left); again.Err != nil || again.Pause != r.Pause || len(again.Left) != 500 {
				t.Errorf("while the partition rests: %d left, pause %v, %v", len(again.Left), again.Pause, again.Err)
			}
			time.Sleep(r.Pause)
		}
		working = true
		for range 2 {
			s.Append(t.Context(), Destination{"target", 0}, records(slices.Repeat([]string{"a"}, 500)...))
		}
		expect.Same(t, sizes, []int{500, probeRecords, probeRecords, 400, 500}, "requests")
	})
}

func TestAppend_EachRestIsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(func(context.Context, string, int, []wire.RawRecord) error { return errDown })
		var rests []time.Duration
		began := time.Now()
		for range 9 {
			r := s.Append(t.Context(), Destination{"target", 0}, records("a"))
			rests = append(rests, r.Pause)
			if until, since := s.Resting("target"); !until.Equal(time.Now().Add(r.Pause)) || !since.Equal(began) {
				t.Errorf("rests until %v since %v", until, since)
			}
			time.Sleep(r.Pause)
		}
		expect.Same(t, rests, []time.Duration{MinRest, 2 * MinRest, 4 * MinRest, 8 * MinRest, 16 * MinRest, 32 * MinRest, 64 * MinRest, MaxRest, MaxRest}, "rests")
		expect.That(t, s.FailingSince().Equal(began), "failing since %v", s.FailingSince())
		time.Sleep(2 * time.Second) // nobody has records for it any more
		if _, since := s.Resting("target"); !s.FailingSince().IsZero() || since.IsZero() {
			t.Errorf("still failing since %v", s.FailingSince())
		}
	})
}

// Of the Senders that share what they know, one tries the partition again.
func TestTwin_OneTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		var mu sync.Mutex
		s := newSender(func(ctx context.Context, _ string, _ int, _ []wire.RawRecord) error {
			mu.Lock()
			requests++
			mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		})
		try := func(s *Sender) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			s.Append(ctx, Destination{"target", 0}, records("a"))
		}
		try(s)
		time.Sleep(MinRest)
		var both sync.WaitGroup
		for _, s := range []*Sender{s, s.Twin()} {
			both.Go(func() { try(s) })
		}
		both.Wait()
		expect.Equal(t, requests, 2, "requests, the first and one more")
	})
}

// Partitions that fail, whether they are known to or not, delay no other. A topic that is missing does not, either.
func TestAppendAll_APartitionThatFailsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(func(ctx context.Context, _ string, p int, _ []wire.RawRecord) error {
			if p >= 10 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		for round := range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			began, acked, left := time.Now(), 0, 0
			s.AppendAll(ctx, map[string][]wire.RawRecord{
				"one": records("a", "b", "c", "k", "l"), "two": records("d", "e", "m"), "missing": records("n"),
			}, func(r Result) {
				for _, a := range r.Acked {
					if acked += len(a.Records); time.Since(began) > 0 {
						t.Errorf("round %d: acked after %v", round, time.Since(began))
					}
				}
				left += len(r.Left)
			})
			cancel()
			expect.That(t, acked == 5 && left == 4 && time.Since(began) <= 3*time.Second, "round %d: %d acked, %d left after %v", round, acked, left, time.Since(began))
			time.Sleep(MaxRest)
		}
	})
}

// The log line is repeated each minute.
func TestSender_AMissingTopicIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		missing := true
		s := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Group: func(context.Context, string, []wire.RawRecord) (map[int][]wire.RawRecord, error) {
			if missing {
				return nil, fmt.Errorf("unknown topic")
			}
			return map[int][]wire.RawRecord{0: nil}, nil
		}})
		for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(5 * time.Second) {
			s.Group(t.Context(), "gone", records("a"))
		}
		expect.Equal(t, strings.Count(log.String(), "partition lookup failed"), 60, "lines of the log in an hour, one a minute")
		missing = false
		s.Group(t.Context(), "gone", records("a"))
		s.Group(t.Context(), "gone", records("a"))
		expect.Equal(t, strings.Count(log.String(), "accepts records again"), 1, "reports of the recovery")
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
