package wire_test

import (
	"testing"

	"github.com/orderclose/orderclose/internal/wire"
)

func TestResolution_RoundTrip(t *testing.T) {
	want := wire.Resolution{Partition: 3, Offset: 1234567890123, How: wire.Redriven}
	m := want.Encode([]byte("order-17"))
	if got, ok := wire.DecodeResolution(&m); !ok || got != want || string(m.Key) != "order-17" || m.Value == nil {
		t.Errorf("%+v, %v; key %q, value %v", got, ok, m.Key, m.Value)
	}
}

func TestDecodeResolution_RejectsOtherRecords(t *testing.T) {
	forged := wire.Resolution{Offset: 5, How: wire.Discarded}.Encode([]byte("a"))
	dead := wire.DeadLetter(forged, "relay", "bad_due", "")
	if _, ok := wire.DecodeResolution(&dead); ok {
		t.Error("a dead letter whose record has a resolution's headers is read as a resolution")
	}
	for _, settles := range []string{"", "5", "0/", "/5", "0/-5", "-1/5", "0/5/6", "a/b", "0/9223372036854775808", "99999999999/1"} {
		m := wire.Message{Headers: []wire.Header{{Key: wire.HeaderSettles, Value: []byte(settles)}}}
		if got, ok := wire.DecodeResolution(&m); ok {
			t.Errorf("%q is read as %+v", settles, got)
		}
	}
}
