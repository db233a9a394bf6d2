package orderclose

import "slices"

// notSentAgain are the headers that tell of former tries, and of an end among the
// dead letters. What is sent again by hand begins anew.
var notSentAgain = []string{
	HeaderAttempt, HeaderCause, HeaderNotDue, HeaderLane,
	HeaderPendingSince, HeaderOriginTopic, HeaderOriginPartition, HeaderOriginOffset,
	HeaderStage, HeaderDetail, HeaderSourceTopic, HeaderSourcePartition, HeaderSourceOffset,
}

// SentAgain returns m as it is sent again by hand, as a replay or a redrive: on
// the replay lane, and with all its tries before it. Its other headers, the key
// and the value stay; m itself is left alone.
func (m Message) SentAgain() Message {
	m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h Header) bool { return slices.Contains(notSentAgain, h.Key) })
	m.add(HeaderLane, LaneReplay)
	return m
}
