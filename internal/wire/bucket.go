package wire

import (
	"time"

	"github.com/orderclose/orderclose"
)

const (
	// ReadLead is how long before its earliest release time a relay must hold a
	// record in memory. It allows for the time of a fetch and for the consumer group
	// of a busy broker to answer.
	ReadLead = 1 * time.Second
	// ReadSlack allows for records that were put into a bucket too early or appended
	// too late, because of a producer's clock or a retried request.
	ReadSlack = 5 * time.Second
)

// UnreadFor returns how long after its append a record may stay unread. The producer put
// the record here because nearly the bucket's length remained, so it is not released
// earlier. A record that was appended longer ago must be in the relay's window. The
// relay reads the smallest bucket whole, because that bucket also takes shorter
// delays, and looks for such records in the others. Treat a negative result as 0.
func UnreadFor(b orderclose.Bucket) time.Duration {
	return b.Length - b.Tolerance() - ReadSlack - ReadLead
}
