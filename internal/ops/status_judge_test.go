package ops

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// message returns a record with this append time and this value of the due header, which
// may be invalid.
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
		if want := b.Release(time.UnixMilli(due), appended); !got.Equal(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if unreadable := leaves(b.Length, message("soon", appended)); !unreadable.Equal(appended.Add(b.Length)) {
			t.Fatalf("unreadable: %v, want the bucket's end", unreadable)
		}
	})
}

func TestLeaves_OfTheCloseTopicIsNeverBeforeTheAppend(t *testing.T) {
	appended := time.UnixMilli(1_700_000_000_000)
	for due, want := range map[string]time.Time{
		"1700000002000": appended.Add(2 * time.Second), // a little early: the closer waits
		"1600000000000": appended,                      // a replay
		"soon":          appended,
	} {
		if got := leaves(0, message(due, appended)); !got.Equal(want) {
			t.Errorf("due %s: %v, want %v", due, got, want)
		}
	}
}

func TestPrintable_CanAlwaysBePrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64().Draw(t, "ms")
		got := printable(time.UnixMilli(ms))
		if _, err := got.MarshalJSON(); err != nil {
			t.Fatalf("%d: %v", ms, err)
		}
		if ms >= 0 && ms < 4e12 && got.UnixMilli() != ms {
			t.Fatalf("%d became %v", ms, got)
		}
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
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestMissingOffsets_ReportsACommitOfAnOldLog(t *testing.T) {
	if got := missingOffsets(kafka.Commit{Offset: 7, FromDeletedLog: true}, 5, 9); !strings.Contains(got, "recreated") {
		t.Errorf("%q", got)
	}
}

func TestNext_NamesTheLikelyCause(t *testing.T) {
	named := &kafka.Member{ClientID: "relay@shop-1:17:9464", Host: "10.0.0.7"}
	owner := &kafka.Member{ClientID: "orderclose", Host: "10.0.0.7"}
	for _, c := range []struct {
		o    Overdue
		want string
	}{
		{Overdue{Topic: TopicStatus{Members: 1}, Partition: PartitionStatus{Owner: owner}}, "its owner orderclose@10.0.0.7"},
		{Overdue{Topic: TopicStatus{Members: 1}, Partition: PartitionStatus{Owner: named}}, "its owner relay@shop-1:17:9464 does"},
		{Overdue{}, "orderclose run relay"},
		{Overdue{Topic: TopicStatus{close: true}}, "orderclose run closer"},
		{Overdue{Topic: TopicStatus{Members: 2, State: "PreparingRebalance"}}, "PreparingRebalance and the partition has no owner"},
	} {
		if got := c.o.Next(); !strings.Contains(got, c.want) || !strings.Contains(got, "orderclose runbook "+c.o.runbook()) {
			t.Errorf("%q, want %q", got, c.want)
		}
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
		if found != (beyond > 0) || worst.Count != beyond || worst.Partition.Overdue != most {
			t.Fatalf("%v: %v %+v", seconds, found, worst)
		}
	})
}
