package partition

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/metrics"
	"github.com/orderclose/orderclose/internal/wire"
)

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
