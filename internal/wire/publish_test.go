package wire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
)

// fakeAppender answers as its function says.
type fakeAppender func(ctx context.Context, topic string) error

func (f fakeAppender) Append(ctx context.Context, topic string, _ Message) error {
	return f(ctx, topic)
}

// publish publishes an order that is due in 8 seconds: to the bucket first, and later to
// the close topic. It returns the topics that were tried.
func publish(ctx context.Context, answer fakeAppender) (tried []string, err error) {
	p := Publisher{
		Appender: fakeAppender(func(ctx context.Context, topic string) error {
			tried = append(tried, topic)
			return answer(ctx, topic)
		}),
		Topic: func(due time.Time) string {
			return orderclose.Buckets{{Topic: "bucket", Length: 5 * time.Second}}.TopicAt(time.Now(), due, "close")
		},
	}
	err = p.Publish(ctx, orderclose.Order{ID: "o", CreatedAt: time.Now(), Due: time.Now().Add(8 * time.Second)})
	return tried, err
}

func TestPublish_PicksTheTopicForEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried, err := publish(t.Context(), func(ctx context.Context, topic string) error {
			if topic == "close" {
				return nil
			}
			<-ctx.Done() // the bucket does not answer
			return ctx.Err()
		})
		if diff := cmp.Diff([]string{"bucket", "bucket", "close"}, tried); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func TestPublish_RetriesUntilItsContextEndsAndReturnsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin, away := time.Now(), errors.New("the broker is away")
		tried, err := publish(ctx, func(context.Context, string) error { return away })
		if !errors.Is(err, away) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if len(tried) < 60 {
			t.Errorf("%d attempts in a minute, want one a second at least", len(tried))
		}
	})
}

func TestPublish_DoesNotRetryARecordThatIsRefused(t *testing.T) {
	tried, err := publish(t.Context(), func(context.Context, string) error { return ErrRefused })
	if !errors.Is(err, ErrRefused) || len(tried) != 1 {
		t.Errorf("%v after %d attempts", err, len(tried))
	}
}
