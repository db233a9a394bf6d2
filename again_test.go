package orderclose_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"orderclose"
)

// TestSentAgain_BeginsAnewOnTheReplayLane, also from a dead letter, and for what
// was sent again before.
func TestSentAgain_BeginsAnewOnTheReplayLane(t *testing.T) {
	want := []orderclose.Header{
		{Key: "due", Value: []byte("1772366760000")}, {Key: "v", Value: []byte("1")},
		{Key: "traceparent", Value: []byte("00-ab-cd-01")}, {Key: "lane", Value: []byte("replay")},
	}
	m := whole(t)
	m.Topic = "order-close"
	dead := orderclose.DeadLetter(m, "closer", "failed", "no stock row")
	for name, from := range map[string]orderclose.Message{"a record": m, "a dead letter": dead, "twice": m.SentAgain()} {
		count := len(from.Headers)
		again := from.SentAgain()
		if diff := cmp.Diff(want, again.Headers); diff != "" || string(again.Value) != string(m.Value) || len(from.Headers) != count {
			t.Errorf("%s, value %s (-want +got):\n%s", name, again.Value, diff)
		}
		if r, err := again.Decode(); err != nil || r.Attempt != 0 || r.Lane != orderclose.LaneReplay || r.Origin.Topic != "" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
