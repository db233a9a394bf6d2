package status

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

	"orderclose"
	"orderclose/internal/kafka"
	"orderclose/internal/partition"
)

// fakeLog has two topics: "bucket" with partitions of seven records, an overdue one
// first and then one for each second up to now, but the third, which does not
// answer; "close", which does not exist.
type fakeLog struct {
	now      time.Time
	n        int
	asking   atomic.Int32
	together atomic.Int32 // the most at once
}

func (l *fakeLog) ask() {
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

func (l *fakeLog) Partitions(_ context.Context, topic string) (int, error) {
	if topic != "bucket" {
		return 0, errors.New("there is no such topic")
	}
	return l.n, nil
}

func (l *fakeLog) Commits(context.Context, string, string, int) ([]kafka.Commit, error) {
	commits := make([]kafka.Commit, l.n)
	commits[1].Offset = -1
	acked, _ := partition.EncodeRuns(0, []partition.Run{{First: 1, End: 2}, {First: 5, End: 7}})
	commits[0].Metadata = acked
	return commits, nil
}

func (l *fakeLog) Group(context.Context, string, string) (kafka.Group, error) {
	return kafka.Group{State: "Stable", Members: []kafka.Member{{ClientID: "orderclose", Partitions: []int{0, 1, 4}}}}, nil
}

func (l *fakeLog) Bounds(_ context.Context, _ string, partition int) (int64, int64, error) {
	l.ask()
	if partition == 2 {
		return 0, 0, errors.New("no leader")
	}
	return 0, 7, nil
}

func (l *fakeLog) OffsetAt(_ context.Context, _ string, partition int, t time.Time) (int64, error) {
	l.ask()
	if partition == 4 {
		return 0, errors.New("no leader any more")
	}
	return 6 + int64(math.Ceil(t.Sub(l.now).Seconds())), nil // offset 6 was appended now
}

func (l *fakeLog) Peek(context.Context, string, int, int64, int64) (*orderclose.Message, error) {
	l.ask()
	return message("0", l.now.Add(-time.Minute)), nil
}

func (l *fakeLog) Glance(_ context.Context, _ string, _ int, offset, end int64) (records []orderclose.Message, next int64, err error) {
	l.ask()
	for next = offset; next < end; next++ {
		m := message("0", l.now.Add(-time.Minute))
		m.Offset = next
		records = append(records, *m)
	}
	return records, next, nil
}

// TestLook_TheWindowIsWhatWasAppendedLongEnoughAgo: of what an owner holds; the rest
// is not read yet.
func TestLook_TheWindowIsWhatWasAppendedLongEnoughAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Of 10 s, 3 s stay unread: offsets 4, 5 and 6 are younger.
		for _, c := range []struct {
			name                 string
			place                Place
			first, second, third int64
		}{
			{"a bucket", Place{Topic: "bucket", Length: 10 * time.Second}, 3, 4, 0},
			{"the smallest bucket", Place{Topic: "bucket", Length: 10 * time.Second, Whole: true}, 4, 7, 0},
			{"a long bucket", Place{Topic: "bucket", Length: time.Hour}, 0, 0, 0},
			{"the close topic", Place{Topic: "bucket"}, 0, 0, 0},
		} {
			log := &fakeLog{now: time.Now(), n: 4}
			bucket := Look(t.Context(), log, []Place{c.place}, func() time.Time { return log.now }).Topics[0]
			got := []int64{bucket.Partitions[0].Window, bucket.Partitions[1].Window, bucket.Partitions[3].Window, bucket.Window}
			// 1 of the first's was acked above the watermark, as were 5 and 6; nobody owns the last.
			if diff := cmp.Diff([]int64{c.first, c.second, c.third, c.first + c.second + c.third}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
		}
	})
}

func TestLook_WhatDoesNotAnswerHidesNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{now: time.Now(), n: 30}
		r := Look(t.Context(), log, []Place{{Topic: "bucket", Length: time.Minute}, {Topic: "close"}}, time.Now)
		bucket := r.Topics[0]
		if bucket.Waiting != 29*7-3 || len(bucket.Partitions) != 30 || bucket.Problem != "" {
			t.Errorf("%d wait in %d partitions, %q; want 200 in 30", bucket.Waiting, len(bucket.Partitions), bucket.Problem)
		}
		if p := bucket.Partitions[2]; !strings.Contains(p.Problem, "no leader") || p.Head != nil {
			t.Errorf("the silent partition: %+v", p)
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
			t.Errorf("partition 4, which fell silent: %+v", p)
		}
		if n := log.together.Load(); n > atOnce {
			t.Errorf("%d requests at once, want at most %d", n, atOnce)
		}
	})
}
