package ops

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

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
		{Behind{Topic: TopicStatus{close: true}}, "orderclose run closer"},
		{Behind{Topic: TopicStatus{Members: 2, State: "PreparingRebalance"}}, "PreparingRebalance and the partition has no owner"},
	} {
		got := c.o.Next()
		expect.That(t, strings.Contains(got, c.want) && strings.Contains(got, "orderclose runbook "+c.o.runbook()), "%q, want %q", got, c.want)
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

// A backlog of the close topic is what waits; in a delay topic most records are not due, and the delay by which its head is overdue says how it goes on.
func TestFollow_SaysWhetherABacklogShrinks(t *testing.T) {
	owner := &kafka.Member{ClientID: "closer@shop-1:17:9464"}
	topic := func(name string, p PartitionStatus) TopicStatus {
		p.Owner, p.Head = owner, &Head{}
		return TopicStatus{Topic: name, Members: 1, close: name != "delay_5m", Partitions: []PartitionStatus{p}}
	}
	const catches, stands, grows = "it is catching up, 100 records a second, and needs about", "does not move the record",
		"moves 100 records a second, and the backlog does not shrink"
	for what, c := range map[string]struct {
		before, after TopicStatus
		took          time.Duration
		want          string
		state         State
	}{
		"a closer drains": {topic("close", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 60}),
			topic("close", PartitionStatus{End: 5500, Waiting: 2500, Overdue: 65}), 10 * time.Second, catches + " 50 s", ActNow},
		"a relay drains": {topic("delay_5m", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 60}),
			topic("delay_5m", PartitionStatus{End: 6200, Waiting: 3200, Overdue: 40}), 10 * time.Second, catches + " 20 s", ActNow},
		"a relay is too slow": {topic("delay_5m", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 60}),
			topic("delay_5m", PartitionStatus{End: 6000, Waiting: 3000, Overdue: 61}), 10 * time.Second, grows, ActNow},
		"a closer is too slow": {topic("close", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 60}),
			topic("close", PartitionStatus{End: 6500, Waiting: 3500, Overdue: 50}), 10 * time.Second, grows, ActNow},
		"nothing moves": {topic("close", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 60}),
			topic("close", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 65}), 10 * time.Second, stands, ActNow},
		"the topic was recreated": {topic("close", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 60}),
			topic("close", PartitionStatus{End: 90, Waiting: 80, Overdue: 40}), 10 * time.Second, stands, ActNow},
		"the last look is long ago": {topic("close", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 60}),
			topic("close", PartitionStatus{End: 5000, Waiting: 2000, Overdue: 65}), time.Hour, stands, ActNow},
		"another topic has that place": {topic("delay_5m", PartitionStatus{End: 5000, Waiting: 3000, Overdue: 60}),
			topic("close", PartitionStatus{End: 5000, Waiting: 2000, Overdue: 65}), 10 * time.Second, stands, ActNow},
	} {
		r := Status{At: noon.Add(c.took), Topics: []TopicStatus{c.after}}
		r.Follow(Status{At: noon, Topics: []TopicStatus{c.before}})
		worst, _ := r.Worst(OverdueLimit)
		if v := (told{AskStatus: knownAs(r)}).judge(r.At); !strings.Contains(worst.Next(), c.want) ||
			!strings.Contains(v.Problems[0].Detail, c.want) || v.State != c.state {
			t.Errorf("%s: %q, %+v, want %q, %s", what, worst.Next(), v, c.want, c.state)
		}
	}
}

func TestFollow_SaysWhichProcessesAreFrozen(t *testing.T) {
	part := func(owner, id string, waiting int64, overdue float64) PartitionStatus {
		return PartitionStatus{End: 100, Waiting: waiting, Overdue: overdue, Owner: &kafka.Member{ID: id, ClientID: owner}}
	}
	a := func(waiting int64, overdue float64) PartitionStatus { return part("a@h:1", "m1", waiting, overdue) }
	b := func(waiting int64) PartitionStatus { return part("b@h:2", "m2", waiting, 0) }
	ownerless := PartitionStatus{End: 100, Waiting: 50, Overdue: 20}
	for what, c := range map[string]struct {
		close         bool
		before, after []PartitionStatus
		want          ProcessState
	}{
		"its position stands":           {false, []PartitionStatus{a(50, 9), b(0)}, []PartitionStatus{a(50, 10), b(0)}, Frozen},
		"nothing is overdue by 10 s":    {false, []PartitionStatus{a(50, 8)}, []PartitionStatus{a(50, 9.9)}, Present},
		"its position moves":            {false, []PartitionStatus{a(50, 20)}, []PartitionStatus{a(49, 21)}, Present},
		"another position of it moves":  {false, []PartitionStatus{a(50, 20), a(50, 20)}, []PartitionStatus{a(50, 21), a(49, 21)}, Present},
		"it has just got the partition": {false, []PartitionStatus{part("b@h:2", "m2", 50, 20)}, []PartitionStatus{a(50, 21)}, Present},
		"nobody had the partition":      {false, []PartitionStatus{ownerless}, []PartitionStatus{a(50, 21)}, Present},
		"nobody has the partition":      {false, []PartitionStatus{a(50, 20)}, []PartitionStatus{ownerless}, Present},
		"another closer goes on":        {true, []PartitionStatus{a(50, 20), b(50)}, []PartitionStatus{a(50, 21), b(40)}, Frozen},
		"no order is closed":            {true, []PartitionStatus{a(50, 20), b(50)}, []PartitionStatus{a(50, 21), b(50)}, Present},
	} {
		r := Status{At: noon.Add(time.Second), Topics: []TopicStatus{{close: c.close, Partitions: c.after}},
			Processes: []Process{{Process: wire.Process{Name: "a@h:1"}, State: Present}, {Process: wire.Process{Name: "b@h:2"}, State: Present}}}
		r.Follow(Status{At: noon, Topics: []TopicStatus{{close: c.close, Partitions: c.before}}})
		expect.That(t, r.Processes[0].State == c.want && r.Processes[1].State == Present, "%s: %+v, want %s", what, r.Processes, c.want)
	}
}

func TestWorst_PrefersWhatDoesNotCatchUp(t *testing.T) {
	all := []PartitionStatus{{Partition: 0, Overdue: 90, CatchUp: 5}, {Partition: 1, Overdue: 40}, {Partition: 2, Overdue: 50},
		{Partition: 3, Overdue: 99, CatchUp: 5}, {Partition: 4, Overdue: 45}}
	for n, want := range []int{0, 0, 1, 2, 2, 2} {
		worst, found := Status{Topics: []TopicStatus{{Partitions: all[:n]}}}.Worst(OverdueLimit)
		expect.That(t, found == (n > 0) && worst.Partition.Partition == want && worst.Count == n, "of %d: %+v", n, worst)
	}
}
