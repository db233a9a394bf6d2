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

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("the broker is down")

// fakeLog answers requests by its function.
type fakeLog struct {
	partitions int
	missing    func() bool // the look-up fails; nil: never
	produce    func(ctx context.Context, partition int, records []wire.RawRecord) error

	mu       sync.Mutex
	requests []request1
	written  map[string]int // how often, by key
}

// request1 is a request that was acked.
type request1 struct {
	partition, records int
}

func (f *fakeLog) Partitions(context.Context, string) (int, error) {
	if f.missing != nil && f.missing() {
		return 0, errDown
	}
	return f.partitions, nil
}

func (f *fakeLog) Idempotent(func(int)) wire.AppendFunc {
	return func(ctx context.Context, _ string, p int, records []wire.RawRecord) (time.Time, error) {
		if f.produce != nil {
			if err := f.produce(ctx, p, records); err != nil {
				return time.Time{}, err
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.requests = append(f.requests, request1{p, len(records)})
		if f.written == nil {
			f.written = map[string]int{}
		}
		for _, r := range records {
			f.written[string(r.Key())]++
		}
		return time.UnixMilli(1), nil
	}
}

func newAppender(f *fakeLog) *Appender {
	return New(Options{Log: f, PartitionOf: func(key []byte, n int) int { return int(key[0]) % n }, Logger: slog.New(slog.DiscardHandler)})
}

func records(keys ...string) []wire.RawRecord {
	all := make([]wire.RawRecord, len(keys))
	for i, key := range keys {
		m := wire.Message{Offset: int64(i), Key: []byte(key)}
		all[i] = m.Raw()
	}
	return all
}

// numbered returns n records with keys of their own.
func numbered(from, n int) []wire.RawRecord {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(from + i)
	}
	return records(keys...)
}

func takes(d time.Duration) func(context.Context, int, []wire.RawRecord) error {
	return func(context.Context, int, []wire.RawRecord) error { time.Sleep(d); return nil }
}

// At a steady load the records of a round trip share a request, and the requests go round the partitions.
func TestSend_OneLaneWorksWhileItKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLog{partitions: 4, produce: takes(3 * time.Millisecond)}
		a := newAppender(f)
		for i := range 1000 {
			a.Send(t.Context(), "t", numbered(i, 1), func(r Result) { expect.Equal(t, r.CountAcked(), 1, "acked") })
			time.Sleep(time.Millisecond)
		}
		a.Close()
		expect.Between(t, len(f.requests), 300, 400, "requests of 1000 records")
		for i := 1; i < len(f.requests); i++ {
			last, next := f.requests[i-1].partition, f.requests[i].partition
			must.That(t, next == (last+1)%4, "request %d goes to %d after %d", i, next, last)
		}
	})
}

func TestSend_ALateRequestDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLog{partitions: 4}
		slow := true
		f.produce = func(context.Context, int, []wire.RawRecord) error {
			if d := 3 * time.Millisecond; !slow {
				time.Sleep(d)
				return nil
			}
			slow = false
			time.Sleep(3 * time.Second)
			return nil
		}
		a := newAppender(f)
		a.Send(t.Context(), "t", numbered(0, 1), func(Result) {})
		synctest.Wait()
		for i := range 1000 {
			began := time.Now()
			a.Send(t.Context(), "t", numbered(1+i, 1), func(Result) { expect.AtMost(t, time.Since(began), 15*time.Millisecond, "the time of record %d", i) })
			time.Sleep(time.Millisecond)
		}
		a.Close()
	})
}

func TestSend_AllLanesWorkInABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, began := &fakeLog{partitions: 4, produce: takes(10 * time.Millisecond)}, time.Now()
		a := newAppender(f)
		m := wire.Message{Key: []byte("k"), Value: make([]byte, wire.MaxAppendBytes/2)}
		a.Send(t.Context(), "t", slices.Repeat([]wire.RawRecord{m.Raw()}, 8), func(Result) {})
		a.Close()
		expect.Equal(t, len(f.requests), 8, "requests")
		expect.AtMost(t, time.Since(began), 30*time.Millisecond, "the time of eight requests of 10 ms in four lanes")
	})
}

// A lane that fails rests, and its records go elsewhere: at once, or when the request gives up that may have been written.
func TestSend_APartitionThatFailsDelaysNoRecord(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			f := &fakeLog{partitions: 3, produce: func(_ context.Context, p int, _ []wire.RawRecord) error {
				switch {
				case p != 1:
					return nil
				case hangs:
					time.Sleep(5 * time.Second)
					tries++
					return wire.ErrUnanswered
				}
				tries++
				return errDown
			}}
			a, late, repeated := newAppender(f), 0, 0
			var mu sync.Mutex
			for i := range 1000 { // a minute
				began := time.Now()
				a.Send(t.Context(), "t", numbered(i, 1), func(r Result) {
					mu.Lock()
					defer mu.Unlock()
					expect.Equal(t, r.CountAcked(), 1, "acked of record %d", i)
					if repeated += r.Repeated; time.Since(began) > 100*time.Millisecond {
						late++
					}
				})
				time.Sleep(60 * time.Millisecond)
			}
			a.Close()
			expect.AtMost(t, tries, 25, "tries of the partition in a minute")
			if most := 0; hangs {
				most = tries
				expect.Equal(t, repeated, tries, "records that may be there twice")
				expect.AtMost(t, late, most, "late records")
			} else {
				expect.That(t, late+repeated == most, "%d late, %d perhaps repeated; want none", late, repeated)
			}
		})
	}
}

// A topic that fails is tried again seldom, its records come back after MaxTime, and it is used again once it works.
func TestSend_ATopicThatFailsRests(t *testing.T) {
	for _, missing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began, tries := time.Now(), 0
			down := func() bool { tries++; return time.Since(began) < time.Hour }
			f := &fakeLog{partitions: 3, produce: func(context.Context, int, []wire.RawRecord) error {
				if down() {
					return errDown
				}
				return nil
			}}
			if missing {
				f.missing, f.produce = down, nil
			}
			a, acked := newAppender(f), 0
			for acked == 0 {
				sent := time.Now()
				r := Wait(func(done func(Result)) { a.Send(t.Context(), "t", records("a"), done) })
				if acked = r.CountAcked(); acked > 0 {
					break
				}
				since, _ := a.Failing("t")
				must.That(t, len(r.Left) == 1 && errors.Is(r.Err, errDown) && time.Since(sent) <= MaxTime+dropEvery && !since.IsZero(), "%+v, failing since %v", r, since)
				time.Sleep(r.Pause)
			}
			expect.AtMost(t, tries, 4500, "tries in an hour")
			expect.AtMost(t, time.Since(began), time.Hour+MaxTime, "the time of the ack")
			since, wait := a.Failing("t")
			expect.That(t, since.IsZero() && wait == 0, "it counts as failing since %v, for %v", since, wait)
			a.Close()
		})
	}
}

// Records with a fixed place come back at once while it fails, and those of other places do not wait.
func TestSendByKey_APlaceThatFailsGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLog{partitions: 2, produce: func(_ context.Context, p int, _ []wire.RawRecord) error {
			if p == 1 {
				return errDown
			}
			return nil
		}}
		a := newAppender(f)
		for range 10 {
			began := time.Now()
			r := Wait(func(done func(Result)) { a.SendByKey(t.Context(), "t", records("\x00a", "\x01b", "\x00c"), done) })
			expect.That(t, r.CountAcked() == 2 && len(r.Left) == 1 && string(r.Left[0].Key()) == "\x01b" && r.Pause >= minRest && time.Since(began) == 0,
				"%+v after %v", r, time.Since(began))
		}
		a.Close()
	})
}

func TestSend_ACallThatEndsStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLog{partitions: 1, produce: func(ctx context.Context, _ int, records []wire.RawRecord) error {
			for _, r := range records {
				expect.That(t, string(r.Key()) == "first", "%s was sent", r.Key())
			}
			select {
			case <-ctx.Done(): // soon after the last call that wants it has ended
				return wire.ErrUnanswered
			case <-time.After(4 * time.Second):
				return nil
			}
		}}
		var calls sync.WaitGroup
		a, began := newAppender(f), time.Now()
		send := func(key string, ends time.Duration, acked int) {
			ctx, end := context.WithTimeout(t.Context(), ends)
			calls.Add(1)
			a.Send(ctx, "t", records(key), func(r Result) {
				defer calls.Done()
				end()
				expect.That(t, r.CountAcked() == acked && len(r.Left) == 1-acked, "%s after %v: %+v", key, time.Since(began), r)
				expect.AtMost(t, time.Since(began), ends+retry.FinishTime+dropEvery, "the time of %s", key)
			})
			synctest.Wait()
		}
		send("first", 3*time.Second, 1)
		send("ends while it waits", time.Second, 0)
		send("ends just before its request", 4*time.Second-dropEvery/2, 0)
		send("has ended", 0, 0)
		calls.Wait()
		began = time.Now()
		send("first", time.Second, 0)
		calls.Wait()
		a.Close()
	})
}

// Whatever Kafka refuses, and whenever which partition fails, each record is in one of the lists once, and what is acked was written.
func TestSend_AccountsForEachRecord(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var wrong []string
		synctest.Test(t, func(*testing.T) { wrong = accounts(r) })
		if len(wrong) > 0 {
			r.Fatal(wrong)
		}
	})
}

func accounts(t *rapid.T) (failed []string) {
	run := func(fails func() bool) {
		f := &fakeLog{partitions: rapid.IntRange(1, 4).Draw(t, "partitions")}
		var mu sync.Mutex
		f.produce = func(_ context.Context, _ int, part []wire.RawRecord) error {
			mu.Lock()
			bad := fails()
			mu.Unlock()
			switch {
			case bad:
				return errDown
			case slices.ContainsFunc(part, func(r wire.RawRecord) bool { return strings.HasPrefix(string(r.Key()), "bad") }):
				return wire.ErrRefused
			}
			return nil
		}
		a := newAppender(f)
		byKey := rapid.Bool().Draw(t, "by key")
		var calls sync.WaitGroup
		for i := range rapid.IntRange(1, 10).Draw(t, "calls") {
			var keys []string
			for j := range rapid.IntRange(0, 30).Draw(t, "records") {
				keys = append(keys, fmt.Sprintf("%s%d-%d", rapid.SampledFrom([]string{"", "", "", "bad"}).Draw(t, "kind"), i, j))
			}
			do := a.Send
			if byKey {
				do = a.SendByKey
			}
			calls.Add(1)
			do(context.Background(), "t", records(keys...), func(r Result) {
				defer calls.Done()
				mu.Lock()
				defer mu.Unlock()
				var got []string
				for _, acked := range r.Acked {
					for _, record := range acked.Records {
						got = append(got, string(record.Key()))
					}
				}
				for _, key := range got {
					if f.mu.Lock(); f.written[key] != 1 {
						failed = append(failed, fmt.Sprintf("%s was acked and written %d times", key, f.written[key]))
					}
					f.mu.Unlock()
				}
				for _, refused := range r.Refused {
					key := string(refused.Record.Key())
					if got = append(got, key); !strings.HasPrefix(key, "bad") {
						failed = append(failed, key+" was refused")
					}
				}
				for _, record := range r.Left {
					got = append(got, string(record.Key()))
				}
				if (r.Err != nil) != (len(r.Left) > 0) {
					failed = append(failed, fmt.Sprintf("%d records are left, because of %v", len(r.Left), r.Err))
				}
				slices.Sort(got)
				slices.Sort(keys)
				if !slices.Equal(got, keys) {
					failed = append(failed, fmt.Sprintf("got %v of %v", got, keys))
				}
			})
		}
		calls.Wait()
		a.Close()
	}
	bad := rapid.SliceOfN(rapid.IntRange(0, 9), 200, 200).Draw(t, "requests")
	n := 0
	run(func() bool { n++; return n < len(bad) && bad[n] == 0 })
	return failed
}

// A producer that has given up may have sent its message elsewhere since.
func TestAppend_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLog{partitions: 1, produce: takes(time.Second)}
		a := newAppender(f)
		go a.Append(t.Context(), "t", wire.Message{Key: []byte("first")})
		synctest.Wait()
		ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		err := a.Append(ctx, "t", wire.Message{Key: []byte("given up")})
		expect.That(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		time.Sleep(time.Second)
		f.produce = func(context.Context, int, []wire.RawRecord) error { return errDown }
		ctx, end = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		expect.Is(t, a.Append(ctx, "t", wire.Message{Key: []byte("not accepted")}), errDown, "the error of a call that has ended")
		a.Close()
		expect.Same(t, f.written, map[string]int{"first": 1}, "written")
	})
}

// failing are topics that rest, or that may be tried.
type failing map[string]time.Duration

func (f failing) Send(context.Context, string, []wire.RawRecord, func(Result)) {}

func (f failing) Failing(topic string) (since time.Time, wait time.Duration) {
	if wait, is := f[topic]; is {
		return time.Unix(1, 0), wait
	}
	return time.Time{}, 0
}

func TestAccepting_IsTheLongestShorterBucket(t *testing.T) {
	buckets := orderclose.Buckets{{Topic: "1m"}, {Topic: "5m"}, {Topic: "30m"}, {Topic: "1h"}}
	for _, c := range []struct {
		failing     failing
		topic, want string
	}{
		{nil, "30m", "30m"}, {failing{"30m": time.Second}, "30m", "5m"}, {failing{"30m": time.Second, "5m": time.Second}, "30m", "1m"},
		{failing{"30m": 0}, "30m", "30m"}, {failing{"30m": time.Second, "5m": time.Second, "1m": time.Second}, "30m", "30m"},
		{failing{"1m": time.Second}, "1m", "1m"}, {failing{"close": time.Second}, "close", "close"},
	} {
		expect.Equal(t, Accepting(c.failing, buckets, c.topic), c.want, "accepting for %s while %v fail", c.topic, c.failing)
	}
}
