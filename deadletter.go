package orderclose

import "strconv"

// Names of the headers that a dead letter carries beside those of its record.
const (
	HeaderStage           = "stage"            // relay or closer
	HeaderDetail          = "detail"           // the cause in words, for a person
	HeaderSourceTopic     = "source-topic"     // where the record lay
	HeaderSourcePartition = "source-partition" //
	HeaderSourceOffset    = "source-offset"    //
)

// Limits of a dead letter, in bytes. The dead-letter topic must take whatever
// could not be read, so what could be huge is cut.
const (
	MaxDeadKey     = 4 << 10
	MaxDeadValue   = 64 << 10
	MaxDeadHeader  = 1 << 10
	MaxDeadHeaders = 32 // headers of the record that are kept
)

// DeadLetter wraps m for the dead-letter topic: its key, its value and headers
// cut to the limits, the cause in a word, the detail in a sentence, the stage
// that gave it up, and where it lay.
func DeadLetter(m Message, stage, cause, detail string) Message {
	dead := Message{Key: clip(m.Key, MaxDeadKey), Value: clip(m.Value, MaxDeadValue)}
	for _, h := range m.Headers[:min(len(m.Headers), MaxDeadHeaders)] {
		if h.Key != HeaderCause {
			dead.Headers = append(dead.Headers, Header{cut(h.Key, MaxDeadHeader), clip(h.Value, MaxDeadHeader)})
		}
	}
	dead.add(HeaderCause, cause)
	dead.add(HeaderDetail, cut(detail, MaxDeadHeader))
	dead.add(HeaderStage, stage)
	dead.add(HeaderSourceTopic, m.Topic)
	dead.add(HeaderSourcePartition, strconv.Itoa(m.Partition))
	dead.add(HeaderSourceOffset, strconv.FormatInt(m.Offset, 10))
	return dead
}

func clip(b []byte, n int) []byte { return b[:min(len(b), n)] }
