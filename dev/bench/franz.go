package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// runFranz is the copy loop of franz-go: one client produces the records of each poll
// without waiting for the acks. It sets only what the workload needs (acks from all
// replicas is its default): no compression, records unchanged. It reads without a
// group and commits nothing.
func runFranz(ctx context.Context, j job) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(j.Brokers...),
		kgo.ConsumeTopics(j.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			break
		}
		fetches.EachRecord(func(r *kgo.Record) {
			client.Produce(ctx, &kgo.Record{Topic: j.Target, Key: r.Key, Value: r.Value, Headers: r.Headers}, func(_ *kgo.Record, err error) {
				if err != nil {
					cancel(err)
				}
			})
		})
	}
	return context.Cause(ctx)
}
