package status

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"orderclose"
	"orderclose/internal/kafka"
)

// fakeLog has two topics: "bucket" with partitions that hold one overdue record
// each, but the third, which does not answer; "close", which does not exist.
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
	return commits, nil
}

func (l *fakeLog) Group(context.Context, string, string) (kafka.Group, error) {
	return kafka.Group{State: "Stable", Members: []kafka.Member{{ClientID: "orderclose", Partitions: []int{0, 1}}}}, nil
}

func (l *fakeLog) Bounds(_ context.Context, _ string, partition int) (int64, int64, error) {
	l.ask()
	if partition == 2 {
		return 0, 0, errors.New("no leader")
	}
	return 0, 7, nil
}

func (l *fakeLog) Peek(context.Context, string, int, int64, int64) (*orderclose.Message, error) {
	l.ask()
	return message("0", l.now.Add(-time.Minute)), nil
}

func TestLook_WhatDoesNotAnswerHidesNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{now: time.Now(), n: 30}
		r := Look(t.Context(), log, []Place{{Topic: "bucket", Length: time.Minute}, {Topic: "close"}}, time.Now)
		bucket := r.Topics[0]
		if bucket.Waiting != 29*7 || len(bucket.Partitions) != 30 || bucket.Problem != "" {
			t.Errorf("%d wait in %d partitions, %q; want 203 in 30", bucket.Waiting, len(bucket.Partitions), bucket.Problem)
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
		if !strings.Contains(r.Topics[1].Problem, "no such topic") || r.Problems() != 2 {
			t.Errorf("%d problems; of the missing topic %q", r.Problems(), r.Topics[1].Problem)
		}
		if n := log.together.Load(); n > atOnce {
			t.Errorf("%d requests at once, want at most %d", n, atOnce)
		}
	})
}
