package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// tally is the content of a target topic at the end. It is read by franz-go, which
// shares no code with the relay.
type tally struct {
	records  int
	distinct int
	// Append times of the first and the last batch, by the broker's clock, and the
	// number of records in the first millisecond.
	first, last time.Time
	head        int
	seen        []bool // by order number
}

func newTally(records int) *tally { return &tally{seen: make([]bool, records)} }

func (t *tally) add(number int, appended time.Time) error {
	if number < 0 || number >= len(t.seen) {
		return fmt.Errorf("order %d was never sent", number)
	}
	if !t.seen[number] {
		t.seen[number] = true
		t.distinct++
	}
	t.records++
	switch {
	case t.head == 0 || appended.Before(t.first):
		t.first, t.head = appended, 1
	case appended.Equal(t.first):
		t.head++
	}
	if appended.After(t.last) {
		t.last = appended
	}
	return nil
}

// rate returns the records per second from the first append to the last. It excludes
// the start of the process and the join of the group, and the records of the first
// millisecond, which mark the beginning.
func (t *tally) rate() float64 {
	took := max(t.last.Sub(t.first), time.Millisecond)
	return float64(t.records-t.head) / took.Seconds()
}

// check returns an error if an order is missing or, with once, has arrived twice.
func (t *tally) check(once bool) error {
	if t.distinct != len(t.seen) {
		return fmt.Errorf("%d of %d orders have arrived", t.distinct, len(t.seen))
	}
	if once && t.records != t.distinct {
		return fmt.Errorf("%d records of %d orders have arrived: some twice", t.records, t.distinct)
	}
	return nil
}

// tally reads the topic, which must hold that many orders.
func (p *workspace) tally(ctx context.Context, topic string, orders int) (*tally, error) {
	held, err := p.length(ctx, topic)
	if err != nil {
		return nil, err
	}
	client, err := p.reader(topic)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	t := newTally(orders)
	for t.records < held {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read %s after %d of %d records: %w", topic, t.records, held, err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			r := iter.Next()
			number, err := numberOf(r.Key)
			if err == nil {
				err = t.add(number, r.Timestamp)
			}
			if err != nil {
				return nil, fmt.Errorf("%s/%d offset %d: %w", topic, r.Partition, r.Offset, err)
			}
		}
	}
	return t, nil
}

// reader returns a client that reads the topic from its start.
func (p *workspace) reader(topic string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(p.brokers...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
}
