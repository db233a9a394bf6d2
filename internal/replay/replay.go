// Package replay sends a window of the close topic again: what on-call does after
// a closer misbehaved. Closing twice changes nothing, so replaying too much only
// costs.
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
	Idempotent(trying func(), repeated func(records int)) orderclose.AppendFunc
}

// Plan is what a replay would send: a snapshot by offsets, which later appends
// do not change.
type Plan struct {
	Topic   string       `json:"topic"`
	From    time.Time    `json:"from"`
	To      time.Time    `json:"to"`
	Spans   []kafka.Span `json:"partitions"`
	Records int64        `json:"records"` // at most: what was replayed before is passed over
}

// Result is what a replay did.
type Result struct {
	Plan
	Sent   int `json:"sent"`
	Passed int `json:"passed"` // were replays themselves, or no records
}

// Make plans the replay of what was appended to the topic in [from, to).
func Make(ctx context.Context, log Log, topic string, from, to time.Time) (Plan, error) {
	p := Plan{Topic: topic, From: from.UTC(), To: to.UTC()}
	if !from.Before(to) {
		return p, fmt.Errorf("the window from %s to %s is empty", p.From.Format(time.RFC3339), p.To.Format(time.RFC3339))
	}
	var err error
	p.Spans, err = log.Window(ctx, topic, from, to)
	for _, s := range p.Spans {
		p.Records += s.Len()
	}
	return p, err
}

// Run sends the records of the plan again, marked as replays, and passes over
// those that are marked already: so a second run of a window does not send the
// first run's records once more. progress, if not nil, hears how many records
// were handled. The result counts what was done also if an error ended it.
func Run(ctx context.Context, log Log, p Plan, progress func(done int64)) (Result, error) {
	r := Result{Plan: p}
	send := log.Idempotent(nil, nil)
	for _, span := range p.Spans {
		err := log.ReadSpan(ctx, p.Topic, span, func(records []orderclose.RawRecord) error {
			marked := mark(records)
			r.Passed += len(records) - len(marked)
			for len(marked) > 0 {
				n := orderclose.Fitting(marked)
				sending, cancel := context.WithTimeout(ctx, sendTimeout)
				_, err := send(sending, p.Topic, span.Partition, marked[:n])
				cancel()
				if err != nil {
					return err
				}
				r.Sent += n
				marked = marked[n:]
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

// mark returns the records that are no replays, marked as such. What is no record
// at all became a dead letter when it came by first.
func mark(records []orderclose.RawRecord) []orderclose.RawRecord {
	var marked []orderclose.RawRecord
	for _, r := range records {
		m, err := r.Message()
		if err != nil {
			continue
		}
		if lane, _ := m.Header(orderclose.HeaderLane); lane == orderclose.LaneReplay {
			continue
		}
		m.Headers = append(m.Headers, orderclose.Header{Key: orderclose.HeaderLane, Value: []byte(orderclose.LaneReplay)})
		marked = append(marked, m.Raw())
	}
	return marked
}
