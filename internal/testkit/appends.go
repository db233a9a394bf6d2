package testkit

import (
	"context"
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

// Partitions is 1 of each topic.
func (l *Log) Partitions(context.Context, string) (int, error) { return 1, nil }
