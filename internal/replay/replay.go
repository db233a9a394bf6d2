// Package replay sends a window of the close topic again: what on-call does after
// a closer misbehaved. What it sends travels on a topic of its own, beside what is
// due now, and closing twice changes nothing: replaying too much only costs.
package replay

import (
	"context"
	"fmt"
	"time"

	"orderclose"
	"orderclose/internal/kafka"
)

// sendTimeout bounds the tries for one batch: a person waits.
const sendTimeout = 30 * time.Second

// Log is what a replay needs of Kafka; internal/kafka's Cluster is one.
type Log interface {
	Window(ctx context.Context, topic string, from, to time.Time) ([]kafka.Span, error)
	ReadSpan(ctx context.Context, topic string, s kafka.Span, each func([]orderclose.RawRecord) error) error
	Spread(ctx context.Context, claim orderclose.Claim, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error)
	Idempotent(trying func(), repeated func(records int)) orderclose.AppendFunc
}

// Window is what is to be sent again: what was appended to Topic in [From, To).
type Window struct {
	Topic string    `json:"topic"` // the close topic
	Into  string    `json:"into"`  // the replay topic
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

// Plan is what a replay would send: a snapshot by offsets, which later appends
// do not change.
type Plan struct {
	Window
	Spans   []kafka.Span `json:"partitions"`
	Records int64        `json:"records"` // at most: what is a replay itself is passed over
}

// Result is what a replay did.
type Result struct {
	Plan
	Sent   int `json:"sent"`
	Passed int `json:"passed"` // were replays themselves, or no records
}

// Make plans the replay of a window.
func Make(ctx context.Context, log Log, w Window) (Plan, error) {
	w.From, w.To = w.From.UTC(), w.To.UTC()
	p := Plan{Window: w}
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

// Run sends the records of the plan again, on the replay lane and with all their
// tries before them. It reads the close topic and writes to the replay topic, so a
// second run of a window sends the same once more, nothing that the first one sent
// among it, and changes nothing. progress, if not nil, hears how many records were
// handled. The result counts what was done also if an error ended it.
func Run(ctx context.Context, log Log, p Plan, progress func(done int64)) (Result, error) {
	r := Result{Plan: p}
	send := log.Idempotent(nil, nil)
	for _, span := range p.Spans {
		claim := orderclose.Claim{Topic: p.Topic, Partition: span.Partition}
		err := log.ReadSpan(ctx, p.Topic, span, func(records []orderclose.RawRecord) error {
			marked := mark(records)
			r.Passed += len(records) - len(marked)
			spread, err := log.Spread(ctx, claim, p.Into, marked)
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
				progress(int64(r.Sent + r.Passed))
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
func sendAll(ctx context.Context, send orderclose.AppendFunc, topic string, partition int, records []orderclose.RawRecord) (sent int, err error) {
	for len(records) > 0 {
		n := orderclose.Fitting(records)
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

// mark returns the records that are no replays, as they are sent again. A replay in
// the close topic is one of a relay that knows no lanes. What is no record at all
// became a dead letter when it came by first.
func mark(records []orderclose.RawRecord) []orderclose.RawRecord {
	var marked []orderclose.RawRecord
	for _, r := range records {
		_, replay, err := r.Route()
		m, malformed := r.Message()
		if malformed != nil || err == nil && replay {
			continue
		}
		again := m.SentAgain()
		marked = append(marked, again.Raw())
	}
	return marked
}
