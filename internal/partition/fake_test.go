package partition

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// fakeLog answers fetches and appends with its functions.
type fakeLog struct {
	fetch  func(offset int64) (wire.Fetched, error)
	read   func(at wire.Position) (wire.Fetched, error) // instead of fetch
	append func(topic string, records []wire.RawRecord) error
	counts func() int // partitions of every topic; nil means one

	mu       sync.Mutex
	appended map[string][]string // keys by topic
}

func (f *fakeLog) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	if f.read != nil {
		return f.read(at)
	}
	return f.fetch(at.Offset)
}

func (f *fakeLog) GroupForClaim(_ context.Context, _ wire.Claim, _ string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
	if f.counts == nil {
		return map[int][]wire.RawRecord{0: records}, nil
	}
	byPartition, n := map[int][]wire.RawRecord{}, f.counts()
	for i, r := range records {
		byPartition[i%n] = append(byPartition[i%n], r)
	}
	return byPartition, nil
}

// Idempotent returns appends that retry until they are acked, like the real ones.
func (f *fakeLog) Idempotent(func(int)) wire.AppendFunc {
	return func(ctx context.Context, topic string, p int, records []wire.RawRecord) (time.Time, error) {
		if f.counts != nil && p >= f.counts() {
			return time.Time{}, wire.ErrNoPartition
		}
		for f.append != nil {
			err := f.append(topic, records)
			if err == nil {
				break
			}
			if errors.Is(err, wire.ErrRefused) || !retry.Sleep(ctx, 100*time.Millisecond) {
				return time.Time{}, err
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.appended == nil {
			f.appended = map[string][]string{}
		}
		for _, r := range records {
			f.appended[topic] = append(f.appended[topic], string(r.Key()))
		}
		return time.UnixMilli(1), nil
	}
}

// Consume is not used.
func (f *fakeLog) Consume(context.Context, string, string, func(context.Context, wire.Claim)) error {
	return errDown
}

var errDown = errors.New("the broker is down")

// newTestLoop returns a loop without a handler.
func newTestLoop(ctx context.Context, log Log) *Loop {
	return newLoop(ctx, &Stage{
		Name: "test", Log: log, DeadLetterTopic: "dead",
		Metrics: NewMetrics(metrics.With(nil), "test"), Logger: slog.New(slog.DiscardHandler),
	}, wire.Claim{Topic: "source", Done: func(int64, string) {}}, &Pulse{})
}

// play does what an iteration does, without a handler, until done returns true or the claim ends, for
// two hours at most.
func (l *Loop) play(done func() bool) {
	for begin := time.Now(); !done() && time.Since(begin) < 2*time.Hour; {
		l.sendDeadLetters()
		select {
		case then := <-l.results:
			l.handleResult(then)
		case <-time.After(time.Second):
		case <-l.Ctx.Done():
			for l.running > 0 {
				l.handleResult(<-l.results)
			}
			return
		}
	}
}

func records(keys ...string) []wire.RawRecord {
	all := make([]wire.RawRecord, len(keys))
	for i, key := range keys {
		m := wire.Message{Offset: int64(i), Key: []byte(key)}
		all[i] = m.Raw()
	}
	return all
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
