package ops

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// latenessFetches bounds the fetches of one stage. Each brings 16 KB, about sixty records, or one
	// larger batch.
	latenessFetches = 32
	// latenessRange is how many offsets a fetch is to bring.
	latenessRange = 64
)

// LatenessOptions for ReadLateness. All fields are required.
type LatenessOptions struct {
	CloseTopic, EventsTopic string
	EventType               string // of the event of a close, such as orderclose.EventOrderClosed
	Now                     time.Time
	Within                  time.Duration // how far back the records were appended
}

// Lateness is how late each stage was, computed from samples of the records that it appended.
type Lateness struct {
	From   time.Time       `json:"from"`
	To     time.Time       `json:"to"`
	Stages []StageLateness `json:"stages"` // relay and closer
}

// StageLateness is how late one stage was. The times are milliseconds, and 0 without records. A
// percentile is that of the nearest rank.
type StageLateness struct {
	Stage string `json:"stage"`
	Topic string `json:"topic"`
	// Appended is how many records of all kinds were appended in the window, and Records how many of
	// those that were read count.
	Appended int64 `json:"appended"`
	Records  int   `json:"records"`
	Complete bool  `json:"complete"` // all of Appended were read; otherwise the numbers are those of a sample
	P50      int64 `json:"p50_ms"`
	P99      int64 `json:"p99_ms"`
	Max      int64 `json:"max_ms"`
	Early    int   `json:"early"` // records before their time
	// Problem is the error if the topic, or a part of it, could not be read.
	Problem string `json:"problem,omitempty"`
}

// ReadLateness reads at most 64 times from Kafka, and finds for the stages
//
//	relay   when records of the close topic were appended, after their release time. Retries, and
//	        records that were sent again by hand, do not count.
//	closer  when orders were closed, after their due time, by the events. Orders that a sweep closed,
//	        or that were closed when they were read, do not count.
//
// Records that are later than orderclose.DefaultMaxDelay do not count.
//
// It reads the whole window if that is possible within the bound. Otherwise it reads at offsets that
// are spread evenly over the records of all partitions. An error becomes the Problem of its stage.
func ReadLateness(ctx context.Context, log Log, o LatenessOptions) Lateness {
	from := o.Now.Add(-o.Within).UTC()
	closed := func(m *wire.Message) (time.Duration, bool) { return closeLateness(m, o.EventType) }
	return Lateness{From: from, To: o.Now.UTC(), Stages: []StageLateness{
		readStage(ctx, log, "relay", o.CloseTopic, from, relayLateness),
		readStage(ctx, log, "closer", o.EventsTopic, from, closed),
	}}
}

// Problems counts the stages with a problem.
func (l Lateness) Problems() (n int) {
	for _, s := range l.Stages {
		if s.Problem != "" {
			n++
		}
	}
	return n
}

// readStage reads samples of a topic. lateness returns how late a record is, or false if the record
// does not count.
func readStage(ctx context.Context, log Log, stage, topic string, from time.Time, lateness func(*wire.Message) (time.Duration, bool)) StageLateness {
	s := StageLateness{Stage: stage, Topic: topic}
	spans, err := kafka.Window(ctx, log, topic, kafka.MomentOf(from), kafka.LogEnd)
	s.Appended = kafka.TotalLen(spans)
	ranges, all := sampleRanges(spans)
	records, read, failed := readRanges(ctx, log, topic, ranges)
	s.Complete = all && read && err == nil
	if err := cmp.Or(err, failed); err != nil {
		s.Problem = err.Error()
	}
	var late []int64
	for i := range records {
		d, counts := lateness(&records[i])
		if !counts || d > orderclose.DefaultMaxDelay { // a forged due time would be the maximum of all
			continue
		}
		if d < 0 {
			s.Early++
		}
		late = append(late, d.Milliseconds())
	}
	slices.Sort(late)
	if s.Records = len(late); s.Records > 0 {
		s.P50, s.P99, s.Max = percentile(late, 50), percentile(late, 99), late[len(late)-1]
	}
	return s
}

// sampleRanges returns at most latenessFetches ranges of at most latenessRange offsets, spread evenly
// over the spans: each is the middle of a part of a span. all says that they cover the spans. It is a
// pure function.
func sampleRanges(spans []kafka.Span) (ranges []kafka.Span, all bool) {
	step := max(latenessRange, (kafka.TotalLen(spans)+latenessFetches-1)/latenessFetches)
	for _, s := range spans {
		for first := s.First; first < s.End; first += step { //mutant:first-lateness-samples
			end := min(first+step, s.End)
			middle := first + max(0, end-first-latenessRange)/2
			ranges = append(ranges, kafka.Span{Partition: s.Partition, First: middle, End: min(middle+latenessRange, end)})
		}
	}
	n := len(ranges)
	if n <= latenessFetches {
		return ranges, step == latenessRange
	}
	for i := range latenessFetches { // there are more partitions than fetches, or a few ranges too many
		ranges[i] = ranges[i*n/latenessFetches]
	}
	return ranges[:latenessFetches], false
}

// readRanges reads the ranges with at most latenessFetches fetches. A range for which one fetch is not
// enough is read on if fetches are left. all says that everything was read. After an error of one
// range it still reads the others.
func readRanges(ctx context.Context, log Log, topic string, ranges []kafka.Span) (records []wire.Message, all bool, err error) {
	fetches := latenessFetches
	for all = true; len(ranges) > 0; {
		n := min(len(ranges), fetches)
		if n == 0 {
			return records, false, err
		}
		fetches -= n
		type fetched struct {
			records []wire.Message
			next    int64
			err     error
		}
		answers := make([]fetched, n)
		each(n, func(i int) {
			r, a := ranges[i], &answers[i]
			a.records, a.next, a.err = log.ReadSome(ctx, topic, r.Partition, r.First, r.End, kafka.GlanceBytes)
		})
		left := slices.Clone(ranges[n:])
		for i, a := range answers {
			records = append(records, a.records...)
			if a.err != nil {
				err, all = a.err, false
			} else if a.next < ranges[i].End {
				left = append(left, kafka.Span{Partition: ranges[i].Partition, First: a.next, End: ranges[i].End})
			}
		}
		ranges = left
	}
	return records, all, err
}

// relayLateness returns how long after its release time a record was appended to the close topic. It
// is a pure function.
func relayLateness(m *wire.Message) (time.Duration, bool) {
	due, err := m.Due()
	lane, _ := m.Header(wire.HeaderLane)
	_, retried := m.Header(wire.HeaderCause)
	return m.Appended.Sub(due), err == nil && lane != wire.LaneReplay && !retried
}

// closeLateness returns how long after its due time the pipeline closed the order of an event. It is
// a pure function.
func closeLateness(m *wire.Message, eventType string) (time.Duration, bool) {
	_, e, err := orderclose.DecodeClosed(m.Value, eventType)
	return e.ClosedAt.Sub(e.Due), err == nil && e.Path == orderclose.PathPipeline && !e.Due.IsZero()
}

// percentile returns the nearest rank of sorted values, of which there is at least one: the smallest
// value that is not below p percent of them. It is a pure function.
func percentile(sorted []int64, p int) int64 { return sorted[(len(sorted)*p+99)/100-1] }
