package wire

import (
	"encoding/json"
	"testing"
)

func TestProcess_IsARecordOfTheControlTopic(t *testing.T) {
	p := Process{Name: "relay@host:17:9464", Version: "v1.2.0", Ended: true}
	m, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got Process
	if err := json.Unmarshal(m.Value, &got); err != nil || got != p || string(m.Key) != KeyProcess || !m.Recognized() {
		t.Errorf("%s %s, recognized %v: %+v, %v", m.Key, m.Value, m.Recognized(), got, err)
	}
	if d, err := (Delays{Default: 1000}).Encode(); err != nil || !d.Recognized() {
		t.Errorf("%+v is not recognized, %v", d, err)
	}
}
