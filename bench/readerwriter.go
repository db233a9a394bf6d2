package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

// handful is how many messages the program collects before it writes them.
const handful = 1000

// runReaderWriter is a typical program with kafka-go: it fetches messages from a
// Reader, writes them with a Writer, and commits. It is configured well: acks from
// all replicas, batches, a short linger.
func runReaderWriter(ctx context.Context, j job) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: j.Brokers, GroupID: j.Group, Topic: j.Source, StartOffset: kafka.FirstOffset,
		MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 500 * time.Millisecond, QueueCapacity: 2 * handful, CommitInterval: 200 * time.Millisecond,
		JoinGroupBackoff: 500 * time.Millisecond,
	})
	defer r.Close()
	w := &kafka.Writer{
		Addr: kafka.TCP(j.Brokers...), Topic: j.Target, Balancer: kafka.Murmur2Balancer{Consistent: true},
		RequiredAcks: kafka.RequireAll, BatchSize: handful, BatchBytes: copyBytes, BatchTimeout: 5 * time.Millisecond,
	}
	defer w.Close()
	for {
		read, err := gather(ctx, r)
		if err != nil {
			return err
		}
		out := make([]kafka.Message, len(read))
		for i, m := range read {
			out[i] = kafka.Message{Key: m.Key, Value: m.Value, Headers: m.Headers}
		}
		if err := w.WriteMessages(ctx, out...); err != nil {
			return err
		}
		if err := r.CommitMessages(ctx, read...); err != nil {
			return err
		}
	}
}

// gather waits for a message and collects the messages that follow within a moment.
func gather(ctx context.Context, r *kafka.Reader) ([]kafka.Message, error) {
	m, err := r.FetchMessage(ctx)
	if err != nil {
		return nil, err
	}
	all := append(make([]kafka.Message, 0, handful), m)
	moment, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	for len(all) < handful {
		m, err := r.FetchMessage(moment)
		if errors.Is(err, context.DeadlineExceeded) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}
