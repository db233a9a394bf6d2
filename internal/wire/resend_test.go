package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/wire"
)

// The result is the same for a dead letter, and for a record that was sent again
// before.
func TestSentAgain_GoesToTheReplayLaneWithoutAttempts(t *testing.T) {
	want := []wire.Header{
		{Key: "due", Value: []byte("1772366760000")}, {Key: "v", Value: []byte("1")},
		{Key: "traceparent", Value: []byte("00-ab-cd-01")}, {Key: "lane", Value: []byte("replay")},
	}
	m := whole(t)
	m.Topic = "order-close"
	dead := wire.DeadLetter(m, "closer", "failed", "no stock row")
	for name, from := range map[string]wire.Message{"a record": m, "a dead letter": dead, "twice": m.Resend()} {
		count := len(from.Headers)
		again := from.Resend()
		if diff := cmp.Diff(want, again.Headers); diff != "" || string(again.Value) != string(m.Value) || len(from.Headers) != count {
			t.Errorf("%s, value %s (-want +got):\n%s", name, again.Value, diff)
		}
		if r, err := again.Decode(); err != nil || r.Attempt != 0 || r.Lane != wire.LaneReplay || r.Origin.Topic != "" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
