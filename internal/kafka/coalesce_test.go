package kafka

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"orderclose"
)

// TestCoalescer_SendsNothingThatNobodyWaitsForAnyMore: a caller that was told that
// its time was up may have put its record elsewhere.
func TestCoalescer_SendsNothingThatNobodyWaitsForAnyMore(t *testing.T) {
	broker, c := newFake(t, 1)
	arrived, release := make(chan bool, 1), make(chan bool)
	broker.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { // the first one only
		arrived <- true
		<-release
		return nil, nil, false
	})
	coalescer := NewCoalescer(c)
	put := func(ctx context.Context, key string) <-chan error {
		done := make(chan error, 1)
		coalescer.enqueue(topicPartition{"t", 0}, orderclose.Message{Key: []byte(key)}, caller{ctx, done})
		return done
	}
	under := put(t.Context(), "under way")
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	put(ctx, "given up")
	cancel()
	behind := put(t.Context(), "behind it")
	put(ctx, "given up before it came")
	close(release)
	for _, done := range []<-chan error{under, behind} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	coalescer.Close()
	var keys []string
	_, end, err := c.Bounds(t.Context(), "t", 0)
	if err == nil {
		err = c.ReadSpan(t.Context(), "t", Span{End: end}, func(records []orderclose.RawRecord) error {
			for _, r := range records {
				keys = append(keys, string(r.Key()))
			}
			return nil
		})
	}
	if diff := cmp.Diff([]string{"under way", "behind it"}, keys); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
