package kafka

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/wire"
)

// TestCoalescer_DropsMessagesOfCanceledCallers: a caller whose Append has timed out may have
// stored its record elsewhere.
func TestCoalescer_DropsMessagesOfCanceledCallers(t *testing.T) {
	broker, c := newFake(t, 1)
	arrived, release := make(chan bool, 1), make(chan bool)
	broker.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { // only the first request
		arrived <- true
		<-release
		return nil, nil, false
	})
	coalescer := NewCoalescer(c)
	put := func(ctx context.Context, key string) <-chan error {
		done := make(chan error, 1)
		coalescer.enqueue(topicPartition{"t", 0}, waiting{wire.Message{Key: []byte(key)}, ctx, done})
		return done
	}
	inFlight := put(t.Context(), "in flight")
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	put(ctx, "canceled while queued")
	cancel()
	next := put(t.Context(), "next")
	put(ctx, "canceled before it was queued")
	close(release)
	for _, done := range []<-chan error{inFlight, next} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	coalescer.Close()
	var keys []string
	_, end, err := c.Bounds(t.Context(), "t", 0)
	if err == nil {
		err = c.ReadSpan(t.Context(), "t", Span{End: end}, func(records []wire.RawRecord) error {
			for _, r := range records {
				keys = append(keys, string(r.Key()))
			}
			return nil
		})
	}
	if diff := cmp.Diff([]string{"in flight", "next"}, keys); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
