package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// sendTimeout bounds all attempts to append one batch: a person waits for the command.
const sendTimeout = 30 * time.Second

// ReplayLog is what a replay needs of Kafka. Cluster of internal/kafka implements it.
type ReplayLog interface {
	Window(ctx context.Context, topic string, from, to time.Time) ([]kafka.Span, error)
	ReadSpan(ctx context.Context, topic string, s kafka.Span, each func([]wire.RawRecord) error) error
	GroupForClaim(ctx context.Context, claim wire.Claim, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error)
	Idempotent(trying func(), repeated func(records int)) wire.AppendFunc
}

// ReplayWindow is the range of records to send again: those appended to Topic in [From, To).
type ReplayWindow struct {
	Topic string    `json:"topic"` // the close topic
	Into  string    `json:"into"`  // the replay topic
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

// ReplayPlan is what a replay sends. It is a snapshot of offsets: later appends do not change it.
type ReplayPlan struct {
	ReplayWindow
	Spans   []kafka.Span `json:"partitions"`
	Records int64        `json:"records"` // an upper bound: records that are replays are skipped
}

// ReplayResult is the outcome of Replay.
type ReplayResult struct {
	ReplayPlan
	Sent    int `json:"sent"`
	Skipped int `json:"passed"` // skipped: replays, and invalid records
}

// NewReplayPlan plans the replay of a window of the close topic. On-call uses a replay after a
// closer misbehaved. The records go to a topic of their own, so that they do not delay orders
// that become due now. Closing an order twice changes nothing: a window that is too large only
// costs time.
func NewReplayPlan(ctx context.Context, log ReplayLog, w ReplayWindow) (ReplayPlan, error) {
	w.From, w.To = w.From.UTC(), w.To.UTC()
	p := ReplayPlan{ReplayWindow: w}
	if !w.From.Before(w.To) {
		return p, fmt.Errorf("the window from %s to %s is empty", w.From.Format(time.RFC3339), w.To.Format(time.RFC3339))
	}
	var err error
	p.Spans, err = log.Window(ctx, w.Topic, w.From, w.To)
	for _, s := range p.Spans {
		p.Records += s.Len()
	}
	return p, err
}

// Replay sends the records of the plan again, on the replay lane and with a full number of
// retries. It reads only the close topic and writes only to the replay topic, so it never sends
// a record that a replay sent. A second run of a window sends the same records once more, which
// changes nothing: their orders are closed. progress, if not nil, is called with the number of
// records handled so far. If Replay fails, the result still counts the records that it handled.
func Replay(ctx context.Context, log ReplayLog, p ReplayPlan, progress func(done int64)) (ReplayResult, error) {
	r := ReplayResult{ReplayPlan: p}
	send := log.Idempotent(nil, nil)
	for _, span := range p.Spans {
		claim := wire.Claim{Topic: p.Topic, Partition: span.Partition}
		err := log.ReadSpan(ctx, p.Topic, span, func(records []wire.RawRecord) error {
			marked := toReplay(records)
			r.Skipped += len(records) - len(marked)
			spread, err := log.GroupForClaim(ctx, claim, p.Into, marked)
			if err != nil {
				return err
			}
			for partition, part := range spread {
				n, err := sendAll(ctx, send, p.Into, partition, part)
				if r.Sent += n; err != nil {
					return err
				}
			}
			if progress != nil {
				progress(int64(r.Sent + r.Skipped))
			}
			return nil
		})
		if err != nil {
			return r, fmt.Errorf("replay of %s/%d: %w", p.Topic, span.Partition, err)
		}
	}
	return r, nil
}

// sendAll appends the records to a partition and returns how many were acked.
func sendAll(ctx context.Context, send wire.AppendFunc, topic string, partition int, records []wire.RawRecord) (sent int, err error) {
	for len(records) > 0 {
		n := wire.Fitting(records)
		sending, cancel := context.WithTimeout(ctx, sendTimeout)
		_, err := send(sending, topic, partition, records[:n])
		cancel()
		if err != nil {
			return sent, err
		}
		sent, records = sent+n, records[n:]
	}
	return sent, nil
}

// toReplay returns the records to send. It skips replays: a replay in the close topic comes
// from a relay that does not know lanes. It also skips invalid records, which became dead
// letters when the closer read them first.
func toReplay(records []wire.RawRecord) []wire.RawRecord {
	var marked []wire.RawRecord
	for _, r := range records {
		_, replay, err := r.Route()
		m, malformed := r.Message()
		if malformed != nil || err == nil && replay {
			continue
		}
		again := m.Resend()
		marked = append(marked, again.Raw())
	}
	return marked
}
