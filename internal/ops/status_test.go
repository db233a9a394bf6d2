package ops

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// partitionsLog has two topics. "bucket" has partitions of seven records: the first is overdue,
// and one was appended in each second up to now. Its third partition does not answer.
// "close" does not exist.
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

func (l *partitionsLog) OffsetAt(_ context.Context, _ string, partition int, t time.Time) (int64, error) {
	l.ask()
	if partition == 4 {
		return 0, errors.New("no leader any more")
	}
	return 6 + int64(math.Ceil(t.Sub(l.now).Seconds())), nil // offset 6 was appended now
}

func (l *partitionsLog) Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	return offsetsOf(ctx, l, queries)
}

func (l *partitionsLog) Peek(context.Context, string, int, int64, int64) (*wire.Message, error) {
	l.ask()
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

// TestInspect_TheWindowCountsRecordsAppendedLongEnoughAgo: the window counts records that the
// owner has read; younger ones are not read yet.
func TestInspect_TheWindowCountsRecordsAppendedLongEnoughAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Of a bucket of 10 s the last 3 s stay unread: offsets 4, 5 and 6 are younger.
		for _, c := range []struct {
			name                 string
			target               TopicGroup
			first, second, third int64
		}{
			{"a bucket", TopicGroup{Topic: "bucket", Length: 10 * time.Second}, 3, 4, 0},
			{"the smallest bucket", TopicGroup{Topic: "bucket", Length: 10 * time.Second, Whole: true}, 4, 7, 0},
			{"a long bucket", TopicGroup{Topic: "bucket", Length: time.Hour}, 0, 0, 0},
			{"the close topic", TopicGroup{Topic: "bucket"}, 0, 0, 0},
		} {
			log := &partitionsLog{now: time.Now(), n: 4}
			bucket := ReadStatus(t.Context(), log, []TopicGroup{c.target}, func() time.Time { return log.now }).Topics[0]
			got := []int64{bucket.Partitions[0].Window, bucket.Partitions[1].Window, bucket.Partitions[3].Window, bucket.Window}
			// In partition 0, offset 1 was acked out of order, and so were 5 and 6. The last has no owner.
			if diff := cmp.Diff([]int64{c.first, c.second, c.third, c.first + c.second + c.third}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
		}
	})
}

func TestInspect_APartitionThatDoesNotAnswerHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &partitionsLog{now: time.Now(), n: 30}
		r := ReadStatus(t.Context(), log, []TopicGroup{{Topic: "bucket", Length: time.Minute}, {Topic: "close"}}, time.Now)
		bucket := r.Topics[0]
		if bucket.Waiting != 29*7-3 || len(bucket.Partitions) != 30 || bucket.Problem != "" {
			t.Errorf("%d wait in %d partitions, %q; want 200 in 30", bucket.Waiting, len(bucket.Partitions), bucket.Problem)
		}
		if p := bucket.Partitions[2]; !strings.Contains(p.Problem, "no leader") || p.Head != nil {
			t.Errorf("the partition that does not answer: %+v", p)
		}
		if p := bucket.Partitions[0]; p.Owner == nil || p.Committed == nil || *p.Committed != 0 || p.Overdue <= 60 {
			t.Errorf("partition 0: %+v", p)
		}
		if p := bucket.Partitions[1]; p.Owner == nil || p.Committed != nil {
			t.Errorf("partition 1, without a commit: %+v", p)
		}
		if bucket.Partitions[3].Owner != nil {
			t.Error("partition 3 has an owner")
		}
		if !strings.Contains(r.Topics[1].Problem, "no such topic") || r.Problems() != 3 {
			t.Errorf("%d problems; of the missing topic %q", r.Problems(), r.Topics[1].Problem)
		}
		if p := bucket.Partitions[4]; !strings.Contains(p.Problem, "no leader any more") || p.Waiting != 7 || p.Head == nil || p.Window != 0 {
			t.Errorf("partition 4, which stopped answering: %+v", p)
		}
		if n := log.together.Load(); n > partitionsAtOnce {
			t.Errorf("%d requests at once, want at most %d", n, partitionsAtOnce)
		}
	})
}
