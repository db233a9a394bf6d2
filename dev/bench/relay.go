package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/delayrelay"
	"github.com/orderclose/orderclose/internal/kafka"
)

// runRelay runs the relay as the production program does: as a member of a consumer
// group, with commits. The source is its only bucket and is therefore read whole.
func runRelay(ctx context.Context, j job) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	cluster, err := kafka.New(kafka.Options{Brokers: j.Brokers, Logger: logger})
	if err != nil {
		return err
	}
	defer cluster.Close()
	relay, err := delayrelay.New(delayrelay.Options{
		Log:             cluster,
		Buckets:         orderclose.Buckets{{Topic: j.Source, Length: bucketLength}},
		Group:           func(orderclose.Bucket) string { return j.Group },
		CloseTopic:      j.Target,
		DeadLetterTopic: j.DeadLetter,
		Logger:          logger,
	})
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}
