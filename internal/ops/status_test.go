package ops

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/wire"
)

// partitionsLog has two topics. "bucket" has partitions of seven records: the first is overdue, and one was appended in each second up to now. Its third
// partition does not answer. "close" does not exist.
type partitionsLog struct {
	Log
	now      time.Time
	n        int
	asking   atomic.Int32
	together atomic.Int32 // the highest number at once
}

func (l *partitionsLog) ask() {
	asking := l.asking.Add(1)
	for {
		most := l.together.Load()
		if asking <= most || l.together.CompareAndSwap(most, asking) {
			break
		}
	}
	time.Sleep(time.Second)
	l.asking.Add(-1)
}

func (l *partitionsLog) Partitions(_ context.Context, topic string) (int, error) {
	if topic != "bucket" {
		return 0, errors.New("there is no such topic")
	}
	return l.n, nil
}

func (l *partitionsLog) Commits(context.Context, string, string, int) ([]kafka.Commit, error) {
	commits := make([]kafka.Commit, l.n)
	commits[1].Offset = -1
	acked, _ := wire.EncodeRuns(0, []wire.Run{{First: 1, End: 2}, {First: 5, End: 7}})
	commits[0].Metadata = acked
	return commits, nil
}

func (l *partitionsLog) Group(context.Context, string, string) (kafka.Group, error) {
	return kafka.Group{State: "Stable", Members: []kafka.Member{{ClientID: "orderclose", Partitions: []int{0, 1, 4}}}}, nil
}

func (l *partitionsLog) Bounds(_ context.Context, _ string, partition int) (int64, int64, error) {
	l.ask()
	if partition == 2 {
		return 0, 0, errors.New("no leader")
	}
	return 0, 7, nil
}

func (l *partitionsLog) Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	return offsetsOf(ctx, l, queries)
}

func (l *partitionsLog) Peek(_ context.Context, _ string, partition int, _, _ int64) (*wire.Message, error) {
	l.ask()
	if partition == 4 {
		return nil, errors.New("no leader any more")
	}
	return message("0", l.now.Add(-time.Minute)), nil
}

func (l *partitionsLog) ReadSome(_ context.Context, _ string, _ int, offset, end int64, _ int32) (records []wire.Message, next int64, err error) {
	l.ask()
	for next = offset; next < end; next++ {
		m := message("0", l.now.Add(-time.Minute))
		m.Offset = next
		records = append(records, *m)
	}
	return records, next, nil
}

func TestInspect_APartitionThatDoesNotAnswerHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &partitionsLog{now: time.Now(), n: 30}
		r := ReadStatus(t.Context(), log, []TopicGroup{{Topic: "bucket", Length: time.Minute}, {Topic: "close"}}, time.Now)
		bucket := r.Topics[0]
		expect.That(t, bucket.Waiting == 29*7-3 && len(bucket.Partitions) == 30 && bucket.Problem == "",
			"%d wait in %d partitions, %q; want 200 in 30", bucket.Waiting, len(bucket.Partitions), bucket.Problem)
		if p := bucket.Partitions[2]; !strings.Contains(p.Problem, "no leader") || p.Head != nil {
			t.Errorf("the partition that does not answer: %+v", p)
		}
		if p := bucket.Partitions[0]; p.Owner == nil || p.Committed == nil || *p.Committed != 0 || p.Overdue <= 60 {
			t.Errorf("partition 0: %+v", p)
		}
		if p := bucket.Partitions[1]; p.Owner == nil || p.Committed != nil {
			t.Errorf("partition 1, without a commit: %+v", p)
		}
		expect.That(t, bucket.Partitions[3].Owner == nil, "partition 3 has an owner")
		if !strings.Contains(r.Topics[1].Problem, "no such topic") || r.Problems() != 3 {
			t.Errorf("%d problems; of the missing topic %q", r.Problems(), r.Topics[1].Problem)
		}
		if p := bucket.Partitions[4]; !strings.Contains(p.Problem, "no leader any more") || p.Waiting != 7 {
			t.Errorf("partition 4, which stopped answering: %+v", p)
		}
		if n := log.together.Load(); n > partitionsAtOnce {
			t.Errorf("%d requests at once, want at most %d", n, partitionsAtOnce)
		}
	})
}

// behindLog is one partition of a bucket. at gives the times of the record at an offset.
type behindLog struct {
	partitionsLog
	end      int64
	runs     []wire.Run // acked
	at       func(offset int64) (due, appended time.Time)
	glances  int
	glanceOf int64 // records in each of kafka.GlanceBytes
}

func (l *behindLog) Commits(context.Context, string, string, int) ([]kafka.Commit, error) {
	acked, _ := wire.EncodeRuns(0, l.runs)
	return []kafka.Commit{{Metadata: acked}}, nil
}

func (l *behindLog) Bounds(context.Context, string, int) (int64, int64, error) { return 0, l.end, nil }

func (l *behindLog) Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	return offsetsOf(ctx, l, queries)
}

func (l *behindLog) message(offset int64) *wire.Message {
	due, appended := l.at(offset)
	m := message(strconv.FormatInt(due.UnixMilli(), 10), appended)
	m.Offset = offset
	return m
}

func (l *behindLog) Peek(_ context.Context, _ string, _ int, offset, _ int64) (*wire.Message, error) {
	return l.message(offset), nil
}

func (l *behindLog) ReadSome(_ context.Context, _ string, _ int, offset, end int64, maxBytes int32) (records []wire.Message, next int64, err error) {
	l.glances++
	for next = offset; next < min(end, offset+l.glanceOf*int64(maxBytes)/kafka.GlanceBytes); next++ {
		records = append(records, *l.message(next))
	}
	return records, next, nil
}

// inspect inspects the only partition.
func (l *behindLog) inspect() PartitionStatus {
	l.n = 1
	return ReadStatus(context.Background(), l, []TopicGroup{{Topic: "bucket", Length: time.Minute}}, func() time.Time { return l.now }).Topics[0].Partitions[0]
}

// TestInspect_FindsOverdueRecordsBehindAHeadThatIsNotDue: a broker's clock was an hour ahead for a while, and the owner does nothing.
func TestInspect_FindsOverdueRecordsBehindAHeadThatIsNotDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		ahead := func(int64) (due, appended time.Time) { return now.Add(time.Hour), now.Add(time.Hour - time.Minute) }
		overdue := func(int64) (due, appended time.Time) { return now.Add(-5 * time.Minute), now.Add(-6 * time.Minute) }
		for name, c := range map[string]struct {
			end, from int64 // records from this offset on are overdue
			runs      []wire.Run
			want      bool
		}{
			"right behind the head":              {271, 1, nil, true},
			"behind what was acked":              {271, 201, []wire.Run{{First: 1, End: 200}}, true},
			"between what was acked":             {271, 5, []wire.Run{{First: 1, End: 5}, {First: 6, End: 271}}, true},
			"the second half of a hundred times": {100_000, 50_000, nil, true},
			"acked":                              {271, 1, []wire.Run{{First: 1, End: 271}}, false},
			"not yet":                            {271, 271, nil, false},
		} {
			log := &behindLog{partitionsLog: partitionsLog{now: now}, end: c.end, runs: c.runs, glanceOf: 60, at: func(offset int64) (time.Time, time.Time) {
				if offset >= c.from {
					return overdue(offset)
				}
				return ahead(offset)
			}}
			p := log.inspect()
			if got := p.Overdue == (5 * time.Minute).Seconds(); got != c.want || got != (p.Late != nil) || p.Head == nil || p.Head.Offset != 0 {
				t.Errorf("%s: overdue by %v s, late %+v, head %+v", name, p.Overdue, p.Late, p.Head)
			}
			r := Status{Topics: []TopicStatus{{Topic: "bucket", Partitions: []PartitionStatus{p}}}}
			worst, found := r.Worst(OverdueLimit)
			expect.That(t, found == c.want && (!found || worst.Record().Offset >= c.from), "%s: worst %+v, %v", name, worst, found)
			expect.That(t, log.glances <= maxFirstGaps+1+samples, "%s: %d glances", name, log.glances)
		}
	})
}

func TestInspect_ReadsNoMoreIfTheHeadIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &behindLog{partitionsLog: partitionsLog{now: time.Now()}, end: 100, glanceOf: 60}
		log.at = func(int64) (due, appended time.Time) { return log.now.Add(-time.Hour), log.now.Add(-time.Hour) }
		p := log.inspect()
		expect.That(t, p.Overdue == time.Hour.Seconds() && p.Late == nil && log.glances == 0, "%+v after %d glances", p, log.glances)
	})
}

// TestInspect_TheFarthestDueTimeIsOfARecordThatWaits: most records are due in order, and one of the first is not. The last offsets are acked.
func TestInspect_TheFarthestDueTimeIsOfARecordThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Truncate(time.Millisecond)
		in := func(minutes int64) time.Time { return now.Add(time.Duration(minutes) * time.Minute).UTC() }
		for name, c := range map[string]struct {
			end  int64
			runs []wire.Run
			far  int64 // the offset that is due in a week; -1: none
			want time.Time
		}{
			"the last":                    {100_000, nil, -1, in(99_999)},
			"the last that waits":         {1000, []wire.Run{{First: 900, End: 1000}}, -1, in(899)},
			"one of the first":            {1000, nil, 5, in(7 * 24 * 60)},
			"an acked one does not count": {1000, []wire.Run{{First: 5, End: 6}}, 5, in(999)},
			"the only one":                {1, nil, 0, in(7 * 24 * 60)},
			"none waits":                  {0, nil, -1, time.Time{}},
		} {
			log := &behindLog{partitionsLog: partitionsLog{now: now}, end: c.end, runs: c.runs, glanceOf: 10, at: func(offset int64) (time.Time, time.Time) {
				if offset == c.far {
					return in(7 * 24 * 60), now
				}
				return in(offset), now
			}}
			p := log.inspect()
			diff := cmp.Diff(c.want, p.FarthestDue)
			expect.That(t, diff == "" && p.Problem == "", "%s: %s (-want +got):\n%s", name, p.Problem, diff)
			want := 0.0
			if !c.want.IsZero() {
				want = c.want.Sub(now).Seconds()
			}
			got := (TopicStatus{Partitions: []PartitionStatus{{}, p}}).FarthestDue(now)
			expect.That(t, got == want, "%s: the topic's is in %v s, want %v", name, got, want)
		}
	})
}

func TestInspect_TheFarthestDueTimeIsOnlyAheadOfNow(t *testing.T) {
	due := time.Now()
	expect.Equal(t, (TopicStatus{Partitions: []PartitionStatus{{FarthestDue: due}}}).FarthestDue(due.Add(time.Second)), 0, "seconds until the farthest due time")
}
