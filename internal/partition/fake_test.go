package partition

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"orderclose"
)

// fakeLog answers fetches and appends as its functions say.
type fakeLog struct {
	fetch  func(offset int64) (orderclose.Fetched, error)
	append func(topic string, messages []orderclose.Message) error

	mu       sync.Mutex
	appended map[string][]string // keys by topic
}

func (f *fakeLog) Fetch(_ context.Context, _ string, _ int, offset int64) (orderclose.Fetched, error) {
	return f.fetch(offset)
}

func (f *fakeLog) Place(_ context.Context, _ string, messages []orderclose.Message) ([]int, error) {
	return make([]int, len(messages)), nil
}

func (f *fakeLog) Append(_ context.Context, topic string, _ int, messages []orderclose.Message) (time.Time, error) {
	if f.append != nil {
		if err := f.append(topic, messages); err != nil {
			return time.Time{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.appended == nil {
		f.appended = map[string][]string{}
	}
	for _, m := range messages {
		f.appended[topic] = append(f.appended[topic], string(m.Key))
	}
	return time.UnixMilli(1), nil
}

func newOut(t *testing.T, ctx context.Context, log OutLog) *Out {
	t.Helper()
	return &Out{
		Ctx: ctx, Log: log, Stage: "test", DeadLetterTopic: "dead",
		DeadLettered: func(string, string) {}, Logger: slog.New(slog.DiscardHandler),
	}
}

func messages(keys ...string) []orderclose.Message {
	all := make([]orderclose.Message, len(keys))
	for i, key := range keys {
		all[i] = orderclose.Message{Topic: "source", Offset: int64(i), Key: []byte(key)}
	}
	return all
}
