// Package reads has what reads a part of a topic, for operators and metrics: the records that were appended between two moments, a few of them, or
// only the first one. It uses no consumer group.
package reads

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// Span is a run of offsets of one partition, [First, End).
type Span struct {
	Partition int   `json:"partition"`
	First     int64 `json:"first"`
	End       int64 `json:"end"`
	// Log is the log of the offsets; zero: the present log.
	Log wire.LogID `json:"-"`
	// MaxBytes is that of the Position of each fetch.
	MaxBytes int32 `json:"-"`
}

// Len returns the number of offsets in the span.
func (s Span) Len() int64 { return s.End - s.First }

// TotalLen returns the number of offsets in the spans.
func TotalLen(spans []Span) (n int64) {
	for _, s := range spans {
		n += s.Len()
	}
	return n
}

// Offsets knows the partitions of a topic and their offsets. A kafka.Cluster does.
type Offsets interface {
	Partitions(ctx context.Context, topic string) (int, error)
	Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer
}

// Between returns, by partition, the offsets of a topic from one moment to another: kafka.LogStart and kafka.LogEnd
// for all of them. It leaves out partitions without such offsets. It reads no record. With an error it returns
// the offsets of the partitions that answered.
func Between(ctx context.Context, log Offsets, topic string, from, to kafka.Moment) ([]Span, error) {
	n, err := log.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	var spans []Span
	for p, a := range log.Offsets(ctx, kafka.OffsetQueries(topic, n, from, to)) {
		if err = cmp.Or(err, a.Err); a.Err == nil && a.Offsets[0] < a.Offsets[1] {
			spans = append(spans, Span{Partition: p, First: a.Offsets[0], End: a.Offsets[1]})
		}
	}
	return spans, err
}

// Log is a cluster whose topics are read in parts.
type Log struct{ *kafka.Cluster }

// Window is Between of the cluster.
func (l Log) Window(ctx context.Context, topic string, from, to kafka.Moment) ([]Span, error) {
	return Between(ctx, l, topic, from, to)
}

// Reader reads from a partition; see kafka.Cluster.Read.
type Reader interface {
	Read(ctx context.Context, at wire.Position) (wire.Fetched, error)
}

// maxIdleFetches is how many fetches in a row may make no progress before Scan gives up. Each
// waits two seconds, so they last longer than a new leader needs to catch up.
const maxIdleFetches = 3

// Errors of Scan. Compare them with errors.Is.
var (
	// ErrRecreated means that the offsets of the span belong to other records now.
	ErrRecreated = errors.New("the topic was deleted and recreated while it was read: start again")
	// ErrShorter means that the log no longer reaches the end of the span.
	ErrShorter = errors.New("the log became shorter while it was read: start again")
)

// Scan reads the span and calls each with the Fetched of every read. It stops at the first error
// of each or of a read. It returns the offset up to which it has read, which is the end of the
// span if it succeeds. Lost and corrupt offsets are not errors of Scan: each may return an error
// for them.
func Scan(ctx context.Context, log Reader, topic string, s Span, each func(wire.Fetched) error) (read int64, err error) {
	idle, at := 0, s.First
	for at < s.End {
		f, err := log.Read(ctx, wire.Position{Topic: topic, Partition: s.Partition, Offset: at, Log: s.Log, MaxBytes: s.MaxBytes})
		if err != nil {
			return at, err
		}
		if f.Replaced { //mutant:span-crosses-logs
			return at, fmt.Errorf("%s/%d at offset %d of %d: %w", topic, s.Partition, at, s.End, ErrRecreated)
		}
		if idle++; f.Next != at {
			idle = 0
		}
		if idle == maxIdleFetches {
			return at, fmt.Errorf("%s/%d at offset %d of %d: %w", topic, s.Partition, at, s.End, ErrShorter)
		}
		for n := len(f.Records); n > 0 && f.Records[n-1].Offset >= s.End; n-- {
			f.Records = f.Records[:n-1]
		}
		if err := each(f); err != nil {
			return at, err
		}
		at, s.Log = f.Next, f.Log
	}
	return s.End, nil
}

// ReadSpan reads the span and calls each with the records of every read, and stops at the
// first error of each. Lost or corrupt offsets of the span are errors.
func (l Log) ReadSpan(ctx context.Context, topic string, s Span, each func([]wire.RawRecord) error) error {
	at := s.First
	_, err := Scan(ctx, l, topic, s, func(f wire.Fetched) error {
		if f.Lost != nil {
			return fmt.Errorf("%s/%d: offset %d is gone: %w", topic, s.Partition, at, f.Lost.Err)
		}
		if f.Corrupt != nil && f.Corrupt.First < s.End {
			return fmt.Errorf("%s/%d: offsets %d to %d cannot be read, only what is before and behind them: %w",
				topic, s.Partition, f.Corrupt.First, f.Corrupt.Last, f.Corrupt.Err)
		}
		at = f.Next
		if len(f.Records) == 0 {
			return nil
		}
		return each(f.Records)
	})
	return err
}

const (
	// GlanceBytes is a usual limit of one ReadSome: about sixty records of orders, in bytes.
	GlanceBytes = 16 << 10
	// glanceRecord is the size of a small record of an order, in bytes: ReadSome returns no more records
	// than maxBytes would have of that size, however many the first batch has.
	glanceRecord = 64
	// LittleBytes is the limit of a fetch of a few dead letters: about sixty of them, in bytes.
	LittleBytes = 64 << 10
	// peekMaxBytes is smaller than any batch of many records. The broker sends the first
	// batch whole, however large it is, and with this limit no other batch.
	peekMaxBytes = 1 << 10
	// maxPeeks bounds how many batches without a record are skipped, such as transaction
	// markers.
	maxPeeks = 100
)

// ReadSome returns some records of the partition in [offset, end), and the offset from which
// the next ReadSome continues. It fetches at most maxBytes. The broker sends a larger first batch
// whole, and ReadSome returns the first records of it. So each partition has a request of its own: in an answer about several partitions only the
// first batch of the first one may exceed the limit, and a batch of a producer usually does.
//
// Of a malformed record only the offset and the append time are known. A corrupt batch has no records.
// Offsets that the log does not have are an error.
func (l Log) ReadSome(ctx context.Context, topic string, partition int, offset, end int64,
	maxBytes int32) (records []wire.Message, next int64, err error) {
	f, err := l.ReadOnce(ctx, wire.Position{Topic: topic, Partition: partition, Offset: offset, MaxBytes: maxBytes, MaxRecords: int(maxBytes / glanceRecord)})
	if err == nil && f.Lost != nil {
		err = f.Lost.Err
	} else if err == nil && f.Next == offset {
		err = errors.New("the broker sent no batch")
	}
	if err != nil {
		return nil, offset, fmt.Errorf("look at %s/%d at %d: %w", topic, partition, offset, err)
	}
	for _, r := range f.Records {
		if r.Offset < end {
			m, _ := r.Message()
			records = append(records, m)
		}
	}
	return records, f.Next, nil
}

// Peek returns the first record of the partition in [offset, end), or nil if there is none. It is
// ReadSome that fetches little more than the batch of the record.
func (l Log) Peek(ctx context.Context, topic string, partition int, offset, end int64) (*wire.Message, error) {
	for range maxPeeks {
		if offset >= end {
			return nil, nil
		}
		records, next, err := l.ReadSome(ctx, topic, partition, offset, end, peekMaxBytes)
		if err != nil {
			return nil, err
		}
		if len(records) > 0 {
			return &records[0], nil
		}
		offset = next
	}
	return nil, fmt.Errorf("look at %s/%d: %d batches before offset %d have no record", topic, partition, maxPeeks, offset)
}
