package compensator

import (
	"slices"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
)

// avoidDuration is how long a bucket is avoided after an append failed.
const avoidDuration = time.Minute

// avoided holds the buckets whose last append failed, and until when each is avoided.
// Until then records go to the next smaller bucket. The relay of that bucket forwards
// them as soon as the right bucket accepts records. It is safe for concurrent use.
type avoided struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// pick returns the bucket for the remaining time, or the largest smaller bucket that is
// not avoided. If all of them are avoided, it returns the bucket for the remaining time.
func (a *avoided) pick(buckets orderclose.Buckets, remaining time.Duration) orderclose.Bucket {
	a.mu.Lock()
	defer a.mu.Unlock()
	best := buckets.Pick(remaining)
	for _, b := range slices.Backward(buckets.Open()) {
		if b.Length <= best.Length && time.Now().After(a.until[b.Topic]) {
			return b
		}
	}
	return best
}

// add avoids the topic from now on.
func (a *avoided) add(topic string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[string]time.Time{}
	}
	a.until[topic] = time.Now().Add(avoidDuration)
}
