package ops

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// sampledLog has topics with records in partitions. All of them are in the window.
type sampledLog struct {
	Log
	records   map[string][][]wire.Message // by topic and partition
	brings    int64                       // records of each fetch
	broken    string                      // topic/partition that cannot be read
	unbounded string                      // topic/partition of which nothing is known
	fetches   atomic.Int32
}

func (l *sampledLog) Partitions(_ context.Context, topic string) (int, error) {
	if l.records[topic] == nil {
		return 0, errors.New("there is no such topic")
	}
	return len(l.records[topic]), nil
}

func (l *sampledLog) Bounds(_ context.Context, topic string, partition int) (first, end int64, err error) {
	if l.unbounded == fmt.Sprintf("%s/%d", topic, partition) {
		return 0, 0, errors.New("the partition has no leader")
	}
	return 0, 100 + int64(len(l.records[topic][partition])), nil
}

func (l *sampledLog) OffsetAt(context.Context, string, int, time.Time) (int64, error) {
	return 100, nil
}

func (l *sampledLog) Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	return offsetsOf(ctx, l, queries)
}

func (l *sampledLog) ReadSome(_ context.Context, topic string, partition int, offset, end int64, _ int32) ([]wire.Message, int64, error) {
	l.fetches.Add(1)
	if l.broken == fmt.Sprintf("%s/%d", topic, partition) {
		return nil, offset, errors.New("the partition does not answer")
	}
	next := offset + l.brings
	return l.records[topic][partition][offset-100 : min(next, end)-100], next, nil
}

// released is a record of the close topic that was appended late.
func released(late time.Duration, headers ...wire.Header) wire.Message {
	return wire.Message{Key: []byte("o"), Appended: noon.Add(late), Headers: append([]wire.Header{
		{Key: wire.HeaderVersion, Value: []byte(wire.WireVersion)}, {Key: wire.HeaderDue, Value: []byte(strconv.FormatInt(noon.UnixMilli(), 10))}}, headers...)}
}

// closedLate is the event of an order that was closed late.
func closedLate(t *testing.T, late time.Duration, path orderclose.Path, eventType string) wire.Message {
	t.Helper()
	value := must.Get(orderclose.OrderClosed{Type: eventType, OrderID: "o", Due: noon, ClosedAt: noon.Add(late), Path: path}.Encode())(t)
	return wire.Message{Key: []byte("o"), Value: value}
}

func readLateness(l *sampledLog) Lateness {
	return ReadLateness(context.Background(), l, LatenessOptions{CloseTopic: "close", EventsTopic: "events", EventType: "closed", Now: noon, Within: time.Hour})
}

func TestReadLateness_CountsTheRecordsOfEachStage(t *testing.T) {
	const ms = time.Millisecond
	replay, retry := wire.Header{Key: wire.HeaderLane, Value: []byte(wire.LaneReplay)}, wire.Header{Key: wire.HeaderCause, Value: []byte("failed")}
	var relayed []wire.Message
	for i := range 200 {
		relayed = append(relayed, released(time.Duration(200-i)*ms))
	}
	l := readLateness(&sampledLog{brings: 60, records: map[string][][]wire.Message{
		"close": {relayed, {}, {
			released(time.Minute, replay), released(time.Minute, retry), released(-ms), released(31 * 24 * time.Hour),
			{Appended: noon, Value: []byte("unreadable")},
		}},
		"events": {{
			closedLate(t, 5*ms, orderclose.PathPipeline, "closed"), closedLate(t, time.Hour, orderclose.PathSweep, "closed"),
			closedLate(t, time.Hour, orderclose.PathTouch, "closed"), closedLate(t, time.Hour, orderclose.PathPipeline, "another"), {Value: []byte("{")},
		}},
	}})
	want := Lateness{From: noon.Add(-time.Hour), To: noon, Stages: []StageLateness{
		{Stage: "relay", Topic: "close", Appended: 205, Records: 201, Complete: true, P50: 100, P99: 198, Max: 200, Early: 1},
		{Stage: "closer", Topic: "events", Appended: 5, Records: 1, Complete: true, P50: 5, P99: 5, Max: 5},
	}}
	expect.Same(t, l, want, "lateness")
}

// The lateness grows through the window. A sample that is not spread evenly has another median.
func TestReadLateness_SamplesABusyHourEvenly(t *testing.T) {
	const perPartition = 10_000
	records := make([][]wire.Message, 12)
	for p := range records {
		for i := range perPartition {
			records[p] = append(records[p], released(time.Duration(i)*time.Millisecond))
		}
	}
	for _, brings := range []int64{1, 60, 3000} {
		l := &sampledLog{brings: brings, records: map[string][][]wire.Message{"close": records, "events": {}}}
		s := readLateness(l).Stages[0]
		if n := l.fetches.Load(); s.Complete || s.Problem != "" || n > latenessFetches || s.Records < latenessFetches || s.Appended != 12*perPartition {
			t.Errorf("%d a fetch: %d fetches, %+v", brings, n, s)
		}
		if s.P50 < perPartition*4/10 || s.P50 > perPartition*6/10 {
			t.Errorf("%d a fetch: the median is %d ms, and that of all records %d ms", brings, s.P50, perPartition/2)
		}
	}
}

func TestReadLateness_AProblemHidesNothingElse(t *testing.T) {
	relayed := [][]wire.Message{{released(time.Second)}, {released(time.Minute)}}
	for _, c := range []struct {
		broken, unbounded, problem string
		appended                   int64
	}{
		{broken: "close/0", problem: "the partition does not answer", appended: 2},
		{unbounded: "close/0", problem: "the partition has no leader", appended: 1},
	} {
		got := readLateness(&sampledLog{brings: 60, broken: c.broken, unbounded: c.unbounded, records: map[string][][]wire.Message{"close": relayed}})
		want := []StageLateness{
			{Stage: "relay", Topic: "close", Appended: c.appended, Records: 1, P50: 60_000, P99: 60_000, Max: 60_000, Problem: c.problem},
			{Stage: "closer", Topic: "events", Problem: "there is no such topic"},
		}
		if diff := cmp.Diff(want, got.Stages); diff != "" || got.Problems() != 2 {
			t.Errorf("%d problems (-want +got):\n%s", got.Problems(), diff)
		}
	}
}

func TestSampleRanges_AreFewAndCoverASmallWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var spans []kafka.Span
		var total int64
		for p := range rapid.IntRange(0, 80).Draw(t, "partitions") {
			first := rapid.Int64Range(0, 1000).Draw(t, "first")
			s := kafka.Span{Partition: p, First: first, End: first + rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, 1<<40)).Draw(t, "records")}
			spans, total = append(spans, s), total+s.Len()
		}
		ranges, all := sampleRanges(spans)
		var covered int64
		last := kafka.Span{Partition: -1}
		for _, r := range ranges {
			s := spans[r.Partition]
			if r.First < s.First || r.End > s.End || r.Len() < 1 || r.Len() > latenessRange || r.Partition < last.Partition || r.Partition == last.Partition && r.First < last.End {
				t.Fatalf("%+v of %+v, after %+v", r, s, last)
			}
			covered, last = covered+r.Len(), r
		}
		must.That(t, len(ranges) <= latenessFetches && all == (covered == total), "%d ranges, %d offsets of %d, all %v", len(ranges), covered, total, all)
		if few := total <= latenessRange && len(spans) <= latenessFetches; few && !all {
			t.Fatalf("a small window of %d records is not covered", total)
		}
	})
}

func TestReadRanges_ReadsOnWhileFetchesAreLeft(t *testing.T) {
	for records, want := range map[int]struct {
		read    int
		fetches int32
		all     bool
	}{0: {0, 0, true}, 10: {10, 4, true}, 90: {90, 31, true}, 1000: {96, 32, false}} {
		l := &sampledLog{brings: 3, records: map[string][][]wire.Message{"close": {make([]wire.Message, records)}}}
		spans, _ := kafka.Window(t.Context(), l, "close", kafka.MomentOf(noon), kafka.LogEnd)
		ranges, _ := sampleRanges(spans)
		got, all, err := readRanges(t.Context(), l, "close", ranges)
		if len(got) != want.read || all != want.all || l.fetches.Load() != want.fetches || err != nil {
			t.Errorf("%d records: read %d by %d fetches, all %v, %v; want %+v", records, len(got), l.fetches.Load(), all, err, want)
		}
	}
}

func TestPercentile_IsTheNearestRank(t *testing.T) {
	sorted := []int64{15, 20, 35, 40, 50}
	for p, want := range map[int]int64{5: 15, 30: 20, 40: 20, 50: 35, 99: 50, 100: 50} {
		expect.Equal(t, percentile(sorted, p), want, "the %dth percentile", p)
	}
}
