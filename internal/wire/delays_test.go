package wire

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
)

func TestDelays_AreDecodedAsTheyWereEncoded(t *testing.T) {
	d := NewDelays(orderclose.Delays{Default: 30 * time.Minute, ByCategory: map[string]time.Duration{"virtual": 1500 * time.Millisecond}}, "compensator@shop-1:17:9464")
	d.File = "0123456789"
	m, err := d.Encode()
	if err != nil || string(m.Key) != KeyDelays {
		t.Fatalf("key %q, %v", m.Key, err)
	}
	var got Delays
	if err := json.Unmarshal(m.Value, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Of("virtual") != 1500*time.Millisecond || got.Of("other") != 30*time.Minute || got.Of("") != 30*time.Minute {
		t.Errorf("%+v", got)
	}
	other := got
	other.Process, other.File = "another", ""
	if !got.Same(other) || got.Same(Delays{Default: got.Default}) {
		t.Error("Same compares the delays, and nothing else")
	}
}
