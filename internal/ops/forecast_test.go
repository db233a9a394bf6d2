package ops

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestEdges_CoverThePeriodInFewSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		within := time.Duration(rapid.Int64Range(1, int64(400*day)).Draw(t, "within"))
		edges := ForecastEdges(within)
		steps := len(edges) - 1
		must.That(t, steps >= 1 && steps <= MaxForecastSteps, "within %v: %d steps", within, steps)
		last := edges[steps]
		step := ForecastStepLength(within)
		must.That(t, edges[0] == 0 && last >= within && last-within < step, "within %v: from %v to %v in steps of %v", within, edges[0], edges[steps], step)
	})
}

func TestStepLength_IsRound(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{
		24 * time.Hour: time.Hour, 12 * time.Hour: 30 * time.Minute, time.Hour: 5 * time.Minute, 5 * time.Second: time.Second,
		25 * time.Hour: 2 * time.Hour, 30 * day: 2 * day,
	} {
		expect.Equal(t, ForecastStepLength(within), want, "steps within %v", within)
	}
}

func TestWithin_IsADayOrTheLengthOfTheLargestBucket(t *testing.T) {
	for largest, want := range map[time.Duration]time.Duration{12 * time.Hour: 12 * time.Hour, 48 * time.Hour: 24 * time.Hour} {
		expect.Equal(t, ForecastWithin(orderclose.Buckets{{Length: time.Second}, {Length: largest}}), want, "largest bucket %v", largest)
	}
}

func TestCount_CountsEveryWaitingRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Int64Range(0, 1000).Draw(t, "first")
		end := first + rapid.Int64Range(0, 1000).Draw(t, "waiting")
		offsets := rapid.SliceOfN(rapid.Int64Range(0, 2500), 2, 25).Draw(t, "offsets") // in any order, also outside of the log
		c := newBucketForecast(orderclose.Bucket{}, make([]time.Time, len(offsets)))
		c.count(first, end, offsets)
		all := c.Overdue + c.Later
		for _, step := range c.Steps {
			if all += step.Records; min(step.Records, c.Overdue, c.Later) < 0 {
				t.Fatalf("%+v: less than nothing", c)
			}
		}
		must.That(t, all == end-first && len(c.Steps) == len(offsets)-1, "%+v: %d of %d", c, all, end-first)
	})
}

// offsetsLog is one partition. appended has the append times of its records, in order.
type offsetsLog struct {
	Log
	appended []time.Time
	commit   int64
	asked    []time.Time
}

func (l *offsetsLog) Partitions(context.Context, string) (int, error) { return 1, nil }

func (l *offsetsLog) Commits(context.Context, string, string, int) ([]kafka.Commit, error) {
	return []kafka.Commit{{Offset: l.commit}}, nil
}

func (l *offsetsLog) Bounds(context.Context, string, int) (int64, int64, error) {
	return 0, int64(len(l.appended)), nil
}

func (l *offsetsLog) OffsetAt(_ context.Context, _ string, _ int, t time.Time) (int64, error) {
	l.asked = append(l.asked, t)
	i, _ := slices.BinarySearchFunc(l.appended, t, time.Time.Compare)
	return int64(i), nil
}

func (l *offsetsLog) Offsets(ctx context.Context, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	return offsetsOf(ctx, l, queries)
}

func TestMake_CountsARecordAtItsLatestRelease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(1, 48*3600).Draw(t, "bucket")) * time.Second
		log := &offsetsLog{}
		for range rapid.IntRange(0, 50).Draw(t, "records") {
			ago := time.Duration(rapid.Int64Range(0, int64(length+length/2)).Draw(t, "ago"))
			log.appended = append(log.appended, noon.Add(-ago))
		}
		slices.SortFunc(log.appended, time.Time.Compare)
		log.commit = rapid.Int64Range(-1, int64(len(log.appended))).Draw(t, "commit")
		f := NewForecast(context.Background(), log, orderclose.Buckets{{Topic: "b", Length: length}}, func(orderclose.Bucket) string { return "g" },
			noon, ForecastEdges(time.Duration(rapid.Int64Range(1, 50*3600).Draw(t, "within"))*time.Second))
		b := f.Buckets[0]
		within := func(from, to time.Time) (n int64) {
			for i, a := range log.appended {
				if leaves := a.Add(length); int64(i) >= log.commit && !leaves.Before(from) && leaves.Before(to) {
					n++
				}
			}
			return n
		}
		last := b.Steps[len(b.Steps)-1].To
		if want := within(time.Time{}, noon); b.Overdue != want {
			t.Fatalf("%d overdue, want %d", b.Overdue, want)
		}
		for _, s := range b.Steps {
			// A record that was appended just now leaves last, and the log ends behind it: it
			// counts before the edge at its release.
			if want := within(s.From, s.To); s.Records != want && !s.From.Equal(noon.Add(length)) && !s.To.Equal(noon.Add(length)) {
				t.Fatalf("%d in %v to %v, want %d", s.Records, s.From, s.To, want)
			}
		}
		if want := within(last, noon.Add(1000*day)); b.Later != want && !last.Equal(noon.Add(length)) {
			t.Fatalf("%d later, want %d", b.Later, want)
		}
		for _, asked := range log.asked {
			must.That(t, asked.Before(noon), "asked for %v, which is not in the past", asked)
		}
	})
}

// oneMissing is a offsetsLog in which the topic "missing" does not exist.
type oneMissing struct{ *offsetsLog }

func (l oneMissing) Partitions(_ context.Context, topic string) (int, error) {
	if topic == "missing" {
		return 0, errors.New("does not exist")
	}
	return 1, nil
}

func TestMake_AnErrorOfABucketHidesNoOther(t *testing.T) {
	log := &offsetsLog{appended: []time.Time{noon.Add(-time.Minute)}, commit: -1}
	f := NewForecast(t.Context(), oneMissing{log}, orderclose.Buckets{{Topic: "missing", Length: time.Minute}, {Topic: "b", Length: time.Hour}},
		func(orderclose.Bucket) string { return "g" }, noon, ForecastEdges(time.Hour))
	if f.Problems() != 1 || f.Buckets[0].Problem != "does not exist" || len(f.Buckets[0].Steps) != len(f.Buckets[1].Steps) || f.Buckets[1].Steps[11].Records != 1 {
		t.Errorf("%+v", f)
	}
}
