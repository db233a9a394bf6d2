package testkit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// Appends is the Appender of a fake log, which has such a field and implements send.Log.
type Appends struct {
	once sync.Once
	a    *send.Appender
}

// By returns the Appender of a log.
func (a *Appends) By(log send.Log) *send.Appender {
	a.once.Do(func() {
		a.a = send.New(send.Options{Log: log, Logger: slog.New(slog.DiscardHandler), PartitionOf: func(key []byte, n int) int { return len(key) % n }})
	})
	return a.a
}

// Send implements send.Sender.
func (l *Log) Send(ctx context.Context, topic string, records []wire.RawRecord, done func(send.Result)) {
	l.appends.By(l).Send(ctx, topic, records, done)
}

// Failing implements send.Sender.
func (l *Log) Failing(topic string) (since time.Time, wait time.Duration) {
	return l.appends.By(l).Failing(topic)
}

// SendByKey implements outbox.Kafka.
func (l *Log) SendByKey(ctx context.Context, topic string, records []wire.RawRecord, done func(send.Result)) {
	l.appends.By(l).SendByKey(ctx, topic, records, done)
}

// Partitions implements send.Log.
func (l *Log) Partitions(_ context.Context, topic string) (int, error) {
	if l.Missing != nil && l.Missing(topic) {
		return 0, errors.New("unknown topic or partition")
	}
	return max(l.Count, 1), nil
}
