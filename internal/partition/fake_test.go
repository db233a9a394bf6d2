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
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/wire"
)

// fakeLog answers fetches and appends with its functions.
type fakeLog struct {
	fetch   func(offset int64) (wire.Fetched, error)
	read    func(at wire.Position) (wire.Fetched, error) // instead of fetch
	append  func(topic string, records []wire.RawRecord) error
	appends testkit.Appends

	mu       sync.Mutex
	appended map[string][]string // keys by topic
}

func (f *fakeLog) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	if f.read != nil {
		return f.read(at)
	}
	return f.fetch(at.Offset)
}

func (f *fakeLog) Send(ctx context.Context, topic string, records []wire.RawRecord, done func(send.Result)) {
	f.appends.By(f).Send(ctx, topic, records, done)
}

func (f *fakeLog) Failing(topic string) (time.Time, time.Duration) {
	return f.appends.By(f).Failing(topic)
}

func (f *fakeLog) Partitions(context.Context, string) (int, error) { return 1, nil }

func (f *fakeLog) Idempotent(func(int)) wire.AppendFunc {
	return func(_ context.Context, topic string, _ int, records []wire.RawRecord) (time.Time, error) {
		if f.append != nil {
			if err := f.append(topic, records); err != nil {
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
