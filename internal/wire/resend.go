package wire

import "slices"

// removedHeaders lists the headers that Resend removes: those that describe earlier
// attempts, and those that the dead-letter topic added. A record that is sent again
// by hand starts with all its attempts.
var removedHeaders = slices.Concat(deadHeaders, []string{
	HeaderAttempt, HeaderNotDue, HeaderLane, HeaderPendingSince, HeaderOriginTopic, HeaderOriginPartition, HeaderOriginOffset,
})

// Resend returns a copy of m for a manual replay: with the mark of a copy,
// and with all attempts left. The copy keeps the other headers, the key and the
// value. Resend does not change m.
func (m Message) Resend() Message {
	m.Headers = without(slices.Clone(m.Headers), removedHeaders)
	m.add(HeaderLane, LaneReplay)
	return m
}
