package backlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
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
		r := ReadStatus(t.Context(), log, []TopicGroup{{Topic: "bucket", Length: time.Minute}, {Topic: "close"}}, time.Minute, time.Now)
		bucket := r.Topics[0]
		expect.That(t, bucket.Waiting == 29*7-3 && len(bucket.Partitions) == 30 && bucket.Problem == "",
			"%d wait in %d partitions, %q; want 200 in 30", bucket.Waiting, len(bucket.Partitions), bucket.Problem)
		p := bucket.Partitions[2]
		expect.That(t, strings.Contains(p.Problem, "no leader") && p.Head == nil, "the partition that does not answer: %+v", p)
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
		expect.That(t, log.together.Load() <= partitionsAtOnce, "%d requests at once, want at most %d", log.together.Load(), partitionsAtOnce)
	})
}

// behindLog is one partition of a bucket. at gives the times of the record at an offset.
type behindLog struct {
	partitionsLog
	end      int64
	runs     []wire.Run // acked
	at       func(offset int64) (due, appended time.Time)
	glances  int
	glanceOf int64 // records in each of reads.GlanceBytes
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
	for next = offset; next < min(end, offset+l.glanceOf*int64(maxBytes)/reads.GlanceBytes); next++ {
		records = append(records, *l.message(next))
	}
	return records, next, nil
}

// inspect inspects the only partition.
func (l *behindLog) inspect() PartitionStatus {
	l.n = 1
	targets := []TopicGroup{{Topic: "bucket", Length: time.Minute}}
	return ReadStatus(context.Background(), l, targets, time.Minute, func() time.Time { return l.now }).Topics[0].Partitions[0]
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

// noon is the time at which tests ask.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// offsetsOf answers queries of the start and the end as Offsets of a kafka.Cluster does.
func offsetsOf(ctx context.Context, log interface {
	Bounds(ctx context.Context, topic string, partition int) (first, end int64, err error)
}, queries []kafka.OffsetQuery) []kafka.OffsetAnswer {
	answers := make([]kafka.OffsetAnswer, len(queries))
	for i, q := range queries {
		first, end, err := log.Bounds(ctx, q.Topic, q.Partition)
		answers[i] = kafka.OffsetAnswer{Offsets: []int64{first, end}, Err: err}
	}
	return answers
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// message returns a record with this append time and this value of the due header, which may be invalid.
func message(due string, appended time.Time) *wire.Message {
	return &wire.Message{Key: []byte("o"), Appended: appended, Headers: []wire.Header{
		{Key: wire.HeaderVersion, Value: []byte(wire.WireVersion)}, {Key: wire.HeaderDue, Value: []byte(due)},
	}}
}

func TestLeaves_OfABucketIsTheReleaseForAnyHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := orderclose.Bucket{Length: time.Duration(rapid.Int64Range(1000, 1e8).Draw(t, "length")) * time.Millisecond}
		appended := time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "appended"))
		due := rapid.Int64().Draw(t, "due")
		got := leaves(b.Length, message(strconv.FormatInt(due, 10), appended))
		want := b.Release(time.UnixMilli(due), appended)
		must.That(t, got.Equal(want), "%v, want %v", got, want)
		unreadable := leaves(b.Length, message("soon", appended))
		must.That(t, unreadable.Equal(appended.Add(b.Length)), "unreadable: %v, want the bucket's end", unreadable)
	})
}

func TestLeaves_OfTheCloseTopicIsNeverBeforeTheAppend(t *testing.T) {
	appended := time.UnixMilli(1_700_000_000_000)
	for due, want := range map[string]time.Time{
		"1700000002000": appended.Add(2 * time.Second), // a little early: the closer waits
		"1600000000000": appended,                      // a copy
		"soon":          appended,
	} {
		got := leaves(0, message(due, appended))
		expect.That(t, got.Equal(want), "due %s: %v, want %v", due, got, want)
	}
}

func TestPrintable_CanAlwaysBePrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64().Draw(t, "ms")
		got := printable(time.UnixMilli(ms))
		_, err := got.MarshalJSON()
		must.That(t, err == nil, "%d: %v", ms, err)
		must.That(t, ms < 0 || ms >= 4e12 || got.UnixMilli() == ms, "%d became %v", ms, got)
	})
}

func TestMissingOffsets_ReportsALogWithoutTheCommittedOffset(t *testing.T) {
	for _, c := range []struct {
		commit, start, end int64
		want               string
	}{
		{-1, 5, 9, ""}, {5, 5, 9, ""}, {9, 5, 9, ""}, {0, 0, 0, ""},
		{4, 5, 9, "1 offsets are gone"}, {10, 5, 9, "deleted and recreated"},
	} {
		got := missingOffsets(kafka.Commit{Offset: c.commit}, c.start, c.end)
		expect.That(t, (got == "") == (c.want == "") && strings.Contains(got, c.want), "%+v: %q", c, got)
	}
}

func TestNext_NamesTheLikelyCause(t *testing.T) {
	named := &kafka.Member{ClientID: "relay@shop-1:17:9464", Host: "10.0.0.7"}
	owner := &kafka.Member{ClientID: "orderclose", Host: "10.0.0.7"}
	for _, c := range []struct {
		o    Behind
		want string
	}{
		{Behind{Topic: TopicStatus{Members: 1}, Partition: PartitionStatus{Owner: owner}}, "its owner orderclose@10.0.0.7"},
		{Behind{Topic: TopicStatus{Members: 1}, Partition: PartitionStatus{Owner: named}}, "its owner relay@shop-1:17:9464 does"},
		{Behind{}, "orderclose run relay"},
		{Behind{Topic: TopicStatus{Closes: true}}, "orderclose run closer"},
		{Behind{Topic: TopicStatus{Members: 2, State: "PreparingRebalance"}}, "PreparingRebalance and the partition has no owner"},
	} {
		got := c.o.Next()
		expect.That(t, strings.Contains(got, c.want) && strings.Contains(got, "orderclose runbook "+c.o.Runbook()), "%q, want %q", got, c.want)
	}
}

func TestWorst_FindsOnlyPartitionsBeyondTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.SliceOf(rapid.Float64Range(0, 60)).Draw(t, "overdue")
		var r Status
		beyond, most := 0, 0.0
		for i, s := range seconds {
			r.Topics = append(r.Topics, TopicStatus{Partitions: []PartitionStatus{{Partition: i, Overdue: s}}})
			if s > 30 {
				beyond, most = beyond+1, max(most, s)
			}
		}
		worst, found := r.Worst(OverdueLimit)
		must.That(t, found == (beyond > 0) && worst.Count == beyond && worst.Partition.Overdue == most, "%v: %v %+v", seconds, found, worst)
	})
}

func TestFollow_SaysWhichMembersAreStuck(t *testing.T) {
	part := func(owner, id string, waiting int64, overdue float64) PartitionStatus {
		return PartitionStatus{End: 100, Waiting: waiting, Overdue: overdue, Owner: &kafka.Member{ID: id, ClientID: owner}}
	}
	a := func(waiting int64, overdue float64) PartitionStatus { return part("a@h:1", "m1", waiting, overdue) }
	b := func(waiting int64) PartitionStatus { return part("b@h:2", "m2", waiting, 0) }
	ownerless := PartitionStatus{End: 100, Waiting: 50, Overdue: 20}
	for what, c := range map[string]struct {
		before, after []PartitionStatus
		stuck         bool
	}{
		"its position stands":           {[]PartitionStatus{a(50, 9), b(50)}, []PartitionStatus{a(50, 10), b(40)}, true},
		"nothing is overdue by 10 s":    {[]PartitionStatus{a(50, 8), b(50)}, []PartitionStatus{a(50, 9.9), b(40)}, false},
		"its position moves":            {[]PartitionStatus{a(50, 20), b(50)}, []PartitionStatus{a(49, 21), b(40)}, false},
		"another position of it moves":  {[]PartitionStatus{a(50, 20), a(50, 20)}, []PartitionStatus{a(50, 21), a(49, 21)}, false},
		"it has just got the partition": {[]PartitionStatus{part("b@h:2", "m2", 50, 20), b(50)}, []PartitionStatus{a(50, 21), b(40)}, false},
		"nobody had the partition":      {[]PartitionStatus{ownerless, b(50)}, []PartitionStatus{a(50, 21), b(40)}, false},
		"nobody has the partition":      {[]PartitionStatus{a(50, 20), b(50)}, []PartitionStatus{ownerless, b(40)}, false},
		"nobody moves":                  {[]PartitionStatus{a(50, 20), b(50)}, []PartitionStatus{a(50, 21), b(50)}, false},
	} {
		r := Status{At: noon.Add(time.Second), Topics: []TopicStatus{{Partitions: c.after}}, Members: []Member{{Name: "a@h:1"}, {Name: "b@h:2"}}}
		r.Follow(Status{At: noon, Topics: []TopicStatus{{Partitions: c.before}}})
		expect.That(t, r.Members[0].Stuck == c.stuck && !r.Members[1].Stuck, "%s: %+v, want %v", what, r.Members, c.stuck)
	}
}

// A relay is a member of the group of each delay topic. Other programs have no host in their client id.
func TestMembers_OneForEachProcess(t *testing.T) {
	relay := func(partitions ...int) kafka.Member {
		return kafka.Member{ClientID: "relay@h:1:9464", Host: "/10.0.0.8", Partitions: partitions}
	}
	got := members([]TopicStatus{{Topic: "delay_5m", InGroup: []kafka.Member{relay(0, 1)}}, {Topic: "delay_30m", InGroup: []kafka.Member{relay(2)}},
		{Topic: "order-close", InGroup: []kafka.Member{{ClientID: "console-consumer", Host: "/10.0.0.9"}}}})
	expect.Same(t, got, []Member{{Name: "console-consumer@/10.0.0.9", Host: "/10.0.0.9", Partitions: map[string][]int{"order-close": nil}},
		{Name: "relay@h:1:9464", Host: "/10.0.0.8", Partitions: map[string][]int{"delay_5m": {0, 1}, "delay_30m": {2}}}}, "members")
}

func TestWorst_PrefersWhatDoesNotCatchUp(t *testing.T) {
	all := []PartitionStatus{{Partition: 0, Overdue: 90, CatchUp: 5}, {Partition: 1, Overdue: 40}, {Partition: 2, Overdue: 50},
		{Partition: 3, Overdue: 99, CatchUp: 5}, {Partition: 4, Overdue: 45}}
	for n, want := range []int{0, 0, 1, 2, 2, 2} {
		worst, found := Status{Topics: []TopicStatus{{Partitions: all[:n]}}}.Worst(OverdueLimit)
		expect.That(t, found == (n > 0) && worst.Partition.Partition == want && worst.Count == n, "of %d: %+v", n, worst)
	}
}

// Orders that wait on purpose are counted apart, by their own category, before categories are summed up.
func TestOverdueOrders_PausedOnesAreApart(t *testing.T) {
	var orders []orderclose.Order
	for _, c := range []struct {
		category string
		n        int
		due      time.Duration
	}{{"", 1, -time.Minute}, {"ticket", 7, -10 * time.Second}, {"gift", 3, -time.Hour}, {"new", 4, -2 * time.Minute}} {
		for i := range c.n {
			orders = append(orders, orderclose.Order{ID: fmt.Sprint(c.category, i), Category: c.category, Due: noon.Add(c.due)})
		}
	}
	listed := map[string]time.Duration{"ticket": time.Minute}
	for _, c := range []struct {
		pauses []pausing.Pause
		want   OverdueOrders
		text   string
	}{
		{nil, OverdueOrders{Orders: 15, Oldest: noon.Add(-time.Hour), Categories: map[string]int64{"default": 8, "ticket": 7}, OldestID: "gift0", Example: "ticket0"},
			"15 (the oldest, gift0, was due 2026-11-20T11:00:00.000Z, 8 default, 7 ticket)"},
		{[]pausing.Pause{{Category: "gift"}},
			OverdueOrders{Orders: 12, Paused: 3, Oldest: noon.Add(-2 * time.Minute), Categories: map[string]int64{"default": 5, "ticket": 7}, OldestID: "new0",
				Example: "ticket0"}, "7 ticket), and 3 wait because closing is paused"},
		{[]pausing.Pause{{}}, OverdueOrders{Paused: 15, Categories: map[string]int64{"default": 0}}, "0, and 15 wait because closing is paused"},
	} {
		got := splitPaused(orders, c.pauses).Count(listed)
		diff := cmp.Diff(c.want, got)
		expect.That(t, diff == "" && strings.Contains(got.String(), c.text), "%v (-want +got):\n%s%v, want %s", c.pauses, diff, got, c.text)
	}
	old := OverdueList{Old: []orderclose.Order{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}, {ID: "e"}, {ID: "f"}}}.Count(listed)
	expect.That(t, old.Old == 6 && strings.HasSuffix(old.String(), "; 6 old orders stay open, such as a, b, c, d, e: orderclose runbook every-order-is-excluded"),
		"old orders: %s", old)
	if text := (OverdueOrders{More: true, Paused: 7}).String(); !strings.HasPrefix(text, "at least 0, and 7") {
		t.Error(text)
	}
}

// TestRequests counts what each question asks of one broker with three topics of 12 partitions. In each partition three records wait.
func TestRequests(t *testing.T) {
	const partitions = 12
	broker := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "delay_1h", "delay_24h", "order-close")))(t)
	defer broker.Close()
	cluster := must.Get(kafka.New(kafka.Options{Brokers: broker.ListenAddrs()}))(t)
	defer cluster.Close()
	log := reads.Log{Cluster: cluster}
	for _, topic := range []string{"delay_1h", "delay_24h", "order-close"} {
		for p := range partitions {
			must.Get(log.Append(t.Context(), topic, p, []wire.Message{{Key: []byte("a")}, {Key: []byte("b")}, {Key: []byte("c")}}))(t)
		}
	}
	targets := []TopicGroup{
		{Topic: "delay_1h", Group: "relay-delay_1h", Length: time.Hour},
		{Topic: "delay_24h", Group: "relay-delay_24h", Length: 24 * time.Hour}, {Topic: "order-close", Group: "closer"},
	}
	var mu sync.Mutex
	got := map[string]int{}
	broker.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		switch kind := kmsg.Key(req.Key()); kind {
		case kmsg.ApiVersions, kmsg.Metadata: // of new connections, and every second
		default:
			got[kind.Name()]++
		}
		return nil, nil, false
	})
	now := time.Now()
	for _, c := range []struct {
		what string
		ask  func() (problems int)
		want map[string]int
	}{
		{"the first status", func() int { return ReadStatus(t.Context(), log, targets, time.Minute, time.Now).Problems() },
			// The bounds are two requests. In each partition: the head, and the start of the gap, which brings all.
			map[string]int{"FindCoordinator": 3, "OffsetFetch": 3, "DescribeGroups": 3, "ListOffsets": 2, "Fetch": 3 * partitions * 2}},
		{"another status", func() int { return ReadStatus(t.Context(), log, targets, time.Minute, time.Now).Problems() },
			map[string]int{"OffsetFetch": 3, "DescribeGroups": 3, "ListOffsets": 2, "Fetch": 3 * partitions * 2}},
		{"the window of a replay", func() int {
			expect.NoError(t, expect.Err(log.Window(t.Context(), "order-close", kafka.MomentOf(now.Add(-time.Hour)), kafka.MomentOf(now.Add(time.Hour)))))
			return 0
		}, map[string]int{"ListOffsets": 3}},
	} {
		clear(got)
		problems := c.ask()
		mu.Lock()
		diff := cmp.Diff(c.want, got)
		expect.That(t, diff == "" && problems == 0, "%s has %d problems, and asks (-want +got):\n%s", c.what, problems, diff)
		mu.Unlock()
	}
}
