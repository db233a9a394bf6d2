package wire

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
)

func TestRecognized_TellsOurRecordsFromThoseOfOthers(t *testing.T) {
	due := time.Now()
	order, err1 := Record{Order: orderclose.Order{ID: "o", CreatedAt: due, Due: due}, Release: due}.Encode()
	sweep, err2 := Sweep{StartedAt: due}.Encode()
	pause, err3 := Pause{Path: orderclose.PathSweep, Until: due}.Encode()
	event, err4 := orderclose.OrderClosed{OrderID: "o"}.Encode()
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, m := range map[string]Message{
		"an order": order, "a sweep": sweep, "a pause": pause, "a loss": Lost{Topic: "t"}.Encode(),
		"an event":      {Key: []byte("o"), Value: event},
		"a dead letter": DeadLetter(Message{Value: []byte("?")}, "relay", "no_key", "d"),
		"a resolution":  Resolution{How: Discarded}.Encode(nil),
		"a probe":       {Value: []byte(`{"probe":1}`)},
		"a verdict":     ShadowVerdict{OrderID: "o", Verdict: orderclose.Closed}.Encode(),
	} {
		if !m.Recognized() {
			t.Errorf("%s is not recognized", name)
		}
	}
	for name, m := range map[string]Message{
		"an empty record": {}, "a tombstone": {Key: []byte("customer-7")}, "text": {Key: []byte("k"), Value: []byte("pause")},
		"JSON":                       {Key: []byte("customer-7"), Value: []byte(`{"name":"Ann"}`)},
		"a CloudEvent of others":     {Value: []byte(`{"specversion":"1.0","source":"/customers","id":"1"}`)},
		"JSON that is not an object": {Value: []byte(`[1]`)},
	} {
		if m.Recognized() {
			t.Errorf("%s is taken for ours", name)
		}
	}
}
