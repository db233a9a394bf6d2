package orderclose

import (
	"context"
	"errors"
	"time"
)

// Message is one record of a Kafka partition, decoded, with its bytes copied out
// of the network buffers, so that it may be kept.
type Message struct {
	Topic     string
	Partition int
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	// Appended is when the broker took the record: the timestamp of its batch's
	// header. The record's own timestamp is the producer's and is not it.
	Appended time.Time
	// Generation says which log of its partition the record was read from; see
	// Fetched.
	Generation uint32
}

// MaxAppendBytes bounds what goes into one append, by the sizes of its messages.
// Brokers refuse batches over 1,048,588 bytes by default, and a batch that is
// encoded anew may be larger than its source was.
const MaxAppendBytes = 900_000

// Fitting returns how many of the first records make one append: as many as stay
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

// Size is roughly what the message keeps in memory, in bytes.
func (m Message) Size() int {
	n := 160 + len(m.Key) + len(m.Value) // 160: the struct and its slices' headers
	for _, h := range m.Headers {
		n += 40 + len(h.Key) + len(h.Value)
	}
	return n
}

// Fetched is what one fetch of a partition brought.
type Fetched struct {
	Records []RawRecord // their bodies share one buffer; copy what is to be kept
	// Free, if it is set, gives the memory of Records and of their bodies back, to be
	// written over. Call it once, when nobody will look at either again, or never.
	Free func()
	// Next is the offset to fetch from the next time. It moves on even if there is
	// no record, past markers and compacted offsets.
	Next int64
	// Corrupt is set if the broker sent records that nobody can read. They follow
	// the others, and Next follows them.
	Corrupt *Range
	// Lost is set if the log did not have the offset that was asked for: retention
	// deleted it, or the log was replaced. Next is where reading goes on.
	Lost *Range
	// Replaced is set with Lost if from Next on offsets mean other records than before:
	// the topic was deleted and recreated, or the log lost its end and grew again.
	Replaced bool
	// Log identifies the log, for the Position of the next read.
	Log LogID
	// Generation grows by one each time that offsets come to mean other records than
	// before. Whoever reads the partition sets it here and in the records, so that an
	// answer about a record of the old log marks no offset of the new one. It is not
	// stored anywhere.
	Generation uint32
	// DriftedAppend is how many of the batches were stamped by their producer
	// rather than by the broker: the topic is not set to LogAppendTime.
	DriftedAppend int
}

// ErrRefused is a broker's definite no to an append: these records are too large, or
// invalid, and no second try will change that. The error beside it is the broker's.
var ErrRefused = errors.New("the broker refuses these records")

// LogID identifies the log of a partition. It stands beside each commit, so that a commit
// of a log is not believed in another one of the same name.
type LogID struct {
	// Topic is the topic's id. A topic that is deleted and recreated under its name has
	// another. Zero: the brokers have none, or it was not asked for yet.
	Topic [16]byte
	// Epoch is the leader epoch of the last batch that was read, or a later one; -1 if
	// none is known. With it a broker tells whether its log still has that batch. It
	// means nothing without Topic.
	Epoch int32
}

// Position is where a partition is read on.
type Position struct {
	Topic     string
	Partition int
	Offset    int64
	Log       LogID // that the offset is of; zero: whatever log there is
	// LookBack bounds what is read again of a log that lost its end, if nobody can say
	// how much it lost: what was appended within this time. Zero: all of it.
	LookBack time.Duration
}

// Range is a run of offsets of one partition, both ends included, that could not
// be read, with the reason.
type Range struct {
	First, Last int64
	Err         error
}

// AppendFunc appends records to one partition in one batch and waits until all
// in-sync replicas have them. It tries until that is so, and returns the broker's
// append time, or zero if it is not known. It fails with ErrRefused, when the partition
// has not existed for some seconds, or when ctx ends; the last two leave open whether the
// records were written.
type AppendFunc func(ctx context.Context, topic string, partition int, records []RawRecord) (time.Time, error)

// Claim is a partition that this process may read until the context that came
// with it ends.
type Claim struct {
	Topic     string
	Partition int
	// Offset is where to begin: everything below it was done by a former owner.
	Offset int64
	// Fresh is set if nothing was committed: this is the first start, or the topic was
	// deleted, and its commits with it. Offset is where the log begins.
	Fresh bool
	// Acked is what the former owner told beside Offset by Done.
	Acked string
	// Done says that everything below the offset is done and need not be read
	// again, and what is done above it, in at most 4,000 bytes of the owner's own
	// form. It is committed within the commit interval, and when the claim ends. It
	// never blocks and may be called from any goroutine.
	Done func(offset int64, acked string)
	// Confirm asks whether the claim still holds; nil says that it does. If it does
	// not its context has ended when Confirm returns. It is for an owner who was
	// stopped for a while, and did not hear of what happened; it may be nil.
	Confirm func(ctx context.Context) error
}
