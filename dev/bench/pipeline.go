package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// pipeline is a relay, or a relay and a closer, between a producer and a consumer,
// for measurements of time. Only the relay, or relay and closer, run in another
// process.
type pipeline struct {
	workspace *workspace
	job       job
	relay     *side
	producer  *kgo.Client
	consumer  *kgo.Client
}

// openPipeline starts a relay, or the side that edit sets in the job. It returns when
// a record has passed through each partition; the first of these has the number from.
func openPipeline(ctx context.Context, p *workspace, from int, edit func(*job)) (*pipeline, error) {
	source, err := p.topic(ctx, "delay", partitions)
	if err != nil {
		return nil, err
	}
	l := &pipeline{workspace: p}
	if l.job, err = p.jobFor(ctx, sideRelay, source); err != nil {
		return nil, err
	}
	edit(&l.job)
	if err := l.connect(); err != nil {
		return nil, err
	}
	if l.relay, err = p.start(l.job); err == nil {
		err = l.warmUp(ctx, from)
	}
	if err != nil {
		l.close(ctx)
		return nil, err
	}
	return l, nil
}

// connect creates the producer of the source and the consumer of the target.
func (l *pipeline) connect() (err error) {
	l.producer, err = kgo.NewClient(
		kgo.SeedBrokers(l.workspace.brokers...),
		kgo.DefaultProduceTopic(l.job.Source),
		kgo.ProducerLinger(2*time.Millisecond), // all records of a tick in one request
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		return err
	}
	if l.consumer, err = l.workspace.reader(l.job.Target); err != nil {
		l.producer.Close()
	}
	return err
}

// close stops everything and returns the resources that the relay has used.
func (l *pipeline) close(ctx context.Context) (used process.Used, err error) {
	l.producer.Close()
	l.consumer.Close()
	if l.relay != nil {
		used, err = l.relay.stop()
	}
	l.workspace.drop(context.WithoutCancel(ctx), l.job.Source, l.job.Target, l.job.DeadLetter)
	return used, err
}

// warmUp sends enough records for at least one in each partition, and waits for them.
func (l *pipeline) warmUp(ctx context.Context, from int) error {
	reached := map[int]bool{}
	sent := 0
	for ; len(reached) < partitions; sent++ {
		reached[kafka.PartitionOf([]byte(idOf(from+sent)), partitions)] = true
		if err := l.send(ctx, from+sent, time.Now().Add(-time.Second), func(error) {}); err != nil {
			return err
		}
	}
	_, err := l.receive(ctx, sent)
	return err
}

// send passes a record to the producer, which calls failed if it cannot write it.
func (l *pipeline) send(ctx context.Context, number int, due time.Time, failed func(error)) error {
	m, err := message(number, due)
	if err != nil {
		return err
	}
	l.producer.Produce(ctx, recordOf(m), func(_ *kgo.Record, err error) {
		if err != nil {
			failed(err)
		}
	})
	return nil
}

func recordOf(m wire.Message) *kgo.Record {
	r := &kgo.Record{Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// received is when a record arrived, and how long after its due time.
type received struct {
	number   int
	at       time.Time
	appended time.Time // by the broker's clock
	late     time.Duration
}

// receive waits for that many records.
func (l *pipeline) receive(ctx context.Context, records int) ([]received, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	all := make([]received, 0, records)
	for len(all) < records {
		fetches := l.consumer.PollFetches(ctx)
		now := time.Now()
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("received %d of %d records: %w", len(all), records, err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			r := iter.Next()
			due, err := dueOf(r)
			number, none := numberOf(r.Key)
			if err = errors.Join(err, none); err != nil {
				return nil, err
			}
			all = append(all, received{number, now, r.Timestamp, now.Sub(due)})
		}
	}
	return all, nil
}

func dueOf(r *kgo.Record) (time.Time, error) {
	for _, h := range r.Headers {
		if h.Key == wire.HeaderDue {
			ms, err := strconv.ParseInt(string(h.Value), 10, 64)
			return time.UnixMilli(ms), err
		}
	}
	return time.Time{}, fmt.Errorf("record %s has no header %s", r.Key, wire.HeaderDue)
}
