package wire

import (
	"slices"
	"strconv"
)

// Names of the headers that a dead letter has in addition to the headers of its
// record. The source headers hold the coordinates of that record.
const (
	HeaderStage           = "stage"  // the stage that gave the record up: relay, closer, release or outbox
	HeaderDetail          = "detail" // the cause as a sentence for an operator
	HeaderSourceTopic     = "source-topic"
	HeaderSourcePartition = "source-partition"
	HeaderSourceOffset    = "source-offset"
)

// deadHeaders are the headers that DeadLetter adds to those of the record.
var deadHeaders = []string{HeaderCause, HeaderDetail, HeaderStage, HeaderSourceTopic, HeaderSourcePartition, HeaderSourceOffset}

// WithoutDead returns the headers of a dead letter without those that DeadLetter added. It changes the argument.
func WithoutDead(headers []Header) []Header { return without(headers, deadHeaders) }

func without(headers []Header, names []string) []Header {
	return slices.DeleteFunc(headers, func(h Header) bool { return slices.Contains(names, h.Key) })
}

// Limits of a dead letter, in bytes. The dead-letter topic must accept every
// unreadable record, so DeadLetter cuts the parts that can be huge.
const (
	MaxDeadKey     = 4 << 10
	MaxDeadValue   = 64 << 10
	MaxDeadHeader  = 1 << 10
	MaxDeadHeaders = 32 // a count: headers of the record that are kept
	// MaxDeadLetter is no smaller than a batch of one dead letter, with the headers that DeadLetter adds. Each topic must
	// accept so much, because a replay writes dead letters back.
	MaxDeadLetter = MaxDeadKey + MaxDeadValue + (MaxDeadHeaders+8)*2*MaxDeadHeader
)

// DeadLetter returns the dead letter of m: its key, value and headers, cut to the
// limits, and headers with the cause (a word), the detail (a sentence), the stage
// that gave m up, and the coordinates of m.
func DeadLetter(m Message, stage, cause, detail string) Message {
	dead := Message{Key: clip(m.Key, MaxDeadKey), Value: clip(m.Value, MaxDeadValue)}
	for _, h := range m.Headers[:min(len(m.Headers), MaxDeadHeaders)] {
		if h.Key != HeaderCause {
			dead.Headers = append(dead.Headers, Header{Truncate(h.Key, MaxDeadHeader), clip(h.Value, MaxDeadHeader)})
		}
	}
	dead.add(HeaderCause, cause)
	dead.add(HeaderDetail, Truncate(detail, MaxDeadHeader))
	dead.add(HeaderStage, stage)
	dead.add(HeaderSourceTopic, m.Topic)
	dead.add(HeaderSourcePartition, strconv.Itoa(m.Partition))
	dead.add(HeaderSourceOffset, strconv.FormatInt(m.Offset, 10)) //mutant:dead-letter-originless
	return dead
}

func clip(b []byte, n int) []byte { return b[:min(len(b), n)] }
