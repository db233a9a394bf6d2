package orderclose_test

import (
	"testing"

	"orderclose"
)

func TestMark_RoundTrip(t *testing.T) {
	want := orderclose.Mark{Partition: 3, Offset: 1234567890123, How: orderclose.Redriven}
	m := want.Encode([]byte("order-17"))
	if got, ok := orderclose.ReadMark(&m); !ok || got != want || string(m.Key) != "order-17" || m.Value == nil {
		t.Errorf("%+v, %v; key %q, value %v", got, ok, m.Key, m.Value)
	}
}

func TestReadMark_RejectsOtherRecords(t *testing.T) {
	forged := orderclose.Mark{Offset: 5, How: orderclose.Discarded}.Encode([]byte("a"))
	dead := orderclose.DeadLetter(forged, "relay", "bad_due", "")
	if _, ok := orderclose.ReadMark(&dead); ok {
		t.Error("a dead letter whose record has a mark's headers is read as a mark")
	}
	for _, settles := range []string{"", "5", "0/", "/5", "0/-5", "-1/5", "0/5/6", "a/b", "0/9223372036854775808", "99999999999/1"} {
		m := orderclose.Message{Headers: []orderclose.Header{{Key: orderclose.HeaderSettles, Value: []byte(settles)}}}
		if got, ok := orderclose.ReadMark(&m); ok {
			t.Errorf("%q is read as %+v", settles, got)
		}
	}
}
