package wire

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestProcess_IsARecordOfTheControlTopic(t *testing.T) {
	p := Process{Name: "compensator@host:17:9464", Version: "v1.2.0", Ended: true, EverySeconds: 60, Delays: map[string]int64{"": 1_800_000, "virtual": 1500}, File: "0123456789"}
	m, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got Process
	if err := json.Unmarshal(m.Value, &got); err != nil || string(m.Key) != KeyProcess || !m.Recognized() {
		t.Fatalf("%s %s, recognized %v, %v", m.Key, m.Value, m.Recognized(), err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Delay("virtual") != 1500*time.Millisecond || got.Delay("other") != 30*time.Minute || got.Delay("") != 30*time.Minute {
		t.Errorf("%+v", got)
	}
}
