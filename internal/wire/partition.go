package wire

import (
	"context"
	"errors"
	"time"
)

// Message is a decoded record of a Kafka partition. Its bytes are copied out of the
// network buffers, so the caller may keep it.
type Message struct {
	Topic     string
	Partition int
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	// Appended is when the broker appended the record: the timestamp in the header of
	// its batch. The record's own timestamp comes from its producer and is not used.
	Appended time.Time
}

// MaxAppendBytes limits one append, by the Size of its messages. Brokers reject
// batches over 1,048,588 bytes by default, and a batch that is encoded again may be
// larger than its source.
const MaxAppendBytes = 900_000

// Fitting returns how many of the first records fit into one append: as many as stay
// within MaxAppendBytes, and at least one if there is any.
func Fitting[R interface{ Size() int }](records []R) int {
	size := 0
	for i := range records {
		if size += records[i].Size(); size > MaxAppendBytes && i > 0 {
			return i
		}
	}
	return len(records)
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Size returns roughly how much memory the message keeps, in bytes.
func (m Message) Size() int {
	n := 160 + len(m.Key) + len(m.Value) // 160: the struct and its slices' headers
	for _, h := range m.Headers {
		n += 40 + len(h.Key) + len(h.Value)
	}
	return n
}

// Fetched is the result of one fetch of a partition.
type Fetched struct {
	Records []RawRecord // their bodies share one buffer: copy what you keep
	// Free, if set, returns the memory of Records and their bodies to a pool that
	// overwrites it. Call it at most once, when nothing uses the records or their
	// bodies any longer.
	Free func()
	// Next is the offset of the next fetch. It moves past markers and compacted
	// offsets, so it grows even if there are no records.
	Next int64
	// AtEnd is set if the log had nothing at Next or behind it when it was read. An answer
	// without records may come from the middle of a log, too.
	AtEnd bool
	// End is the offset after the last record that the log had when it was read; 0: unknown.
	End int64
	// Corrupt is set if the broker sent records that cannot be read. They lie between
	// Records and Next.
	Corrupt *Range
	// Lost is set if the log did not have the requested offset, because retention deleted
	// it. Lost is also set if the log was replaced, even if the new log has the offset.
	// Reading continues at Next.
	Lost *Range
	// Replaced is set together with Lost if offsets from Next on mean other records
	// than before: the topic was deleted and recreated, or the log lost its end and
	// grew again.
	Replaced bool
	// Log identifies the log, for the Position of the next fetch.
	Log LogID
	// DriftedAppend is the number of batches that have the timestamp of their
	// producer instead of the broker's. The topic is then not set to LogAppendTime.
	DriftedAppend int
}

// ErrRefused means that a broker rejects an append for good, because the records are
// too large or invalid. Do not retry. The error wraps both ErrRefused and the broker's error.
var ErrRefused = errors.New("the broker refuses these records")

// ErrUnanswered means that records that were not acked may have been written.
var ErrUnanswered = errors.New("an answer is missing")

// LogID identifies the log of a partition, for its reader.
type LogID struct {
	// Topic is the id of the topic. A topic that is deleted and recreated under the
	// same name has another id. Zero means that the brokers have no topic ids, or
	// that the id is not known yet.
	Topic [16]byte
	// Epoch is the leader epoch of the last batch that was read, or a later epoch; -1
	// if none is known. A broker uses it to check that its log still has that batch.
	// It means nothing without Topic.
	Epoch int32
}

// Position is where reading of a partition continues.
type Position struct {
	Topic     string
	Partition int
	Offset    int64
	Log       LogID // the log that Offset belongs to; zero accepts any log
	NoWait    bool  // if there is no record, do not wait for one
	MaxBytes  int32 // of the records of one fetch; 0: 1 MB. The broker sends a larger first batch whole
	// MaxRecords is how many records of one fetch are returned at most; 0: 8,000. Next is behind the last one.
	MaxRecords int
}

// Range is a range of offsets of one partition that could not be read, both ends
// inclusive, and the reason. If Last is less than First, it is unknown which offsets were
// lost, if any.
type Range struct {
	First, Last int64
	Err         error
}

// AppendFunc appends records to one partition in one batch, and returns when all in-sync replicas have them, with the broker's append time,
// or zero if the time is not known. If its error wraps ErrRefused, the broker rejects the records for good; if it wraps ErrUnanswered, they may
// have been written; else nothing was written.
type AppendFunc func(ctx context.Context, topic string, partition int, records []RawRecord) (time.Time, error)

// Claim is a partition that this process may read until the context that came with
// the claim ends.
type Claim struct {
	Topic     string
	Partition int
	// Offset is where to begin reading. A former owner has processed everything below
	// it.
	Offset int64
	// NoCommit is set if no commit exists: this is the first start, or the topic was
	// deleted and its commits with it. Offset is then the start of the log.
	NoCommit bool
	// Acked is the metadata of the commit of Offset, "" without a commit. DecodeRuns reads
	// the done offsets above Offset from it.
	Acked string
	// Done records that everything below offset is processed and need not be read
	// again. acked is the result of EncodeRuns: the done offsets above
	// offset. Both are committed within 200 ms, and when the claim ends. Done never
	// blocks and may be called from any goroutine.
	Done func(offset int64, acked string)
	// Confirm checks that the claim still holds. A nil error means that it does. If
	// another member owns the partition, the claim's context has ended when Confirm
	// returns. After any other error it is unknown: call Confirm again. Call Confirm
	// after the process was stopped for a while and may have missed a rebalance. The
	// field may be nil.
	Confirm func(ctx context.Context) error
	// Log is the log that existed when the claim began. Zero: it is not known, or a loop of the claim has found another one.
	Log ClaimedLog
}

// ClaimedLog is the log of a claim.
type ClaimedLog struct {
	Topic [16]byte // its id; zero: not known
	// End returns the offset after the last record, as it was a few seconds ago; 0: unknown. It makes no request.
	End func() int64
	// Gone reports whether brokers say, for a whole second, that the topic does not exist, or has another id.
	Gone func(ctx context.Context) bool
}
