package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProcess_IsDecodedAsItWasEncoded(t *testing.T) {
	for _, p := range []Process{{Name: "relay@host:17:9464", Version: "v1.2.0"}, {Name: "closer@host:17", Ended: true}} {
		m, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeProcess(m.Value)
		if diff := cmp.Diff(p, got); err != nil || diff != "" || string(m.Key) != KeyProcess {
			t.Errorf("key %q, %v (-want +got):\n%s", m.Key, err, diff)
		}
	}
	for _, value := range []string{"", "[]", "{}", `{"version":"v1"}`} {
		if p, err := DecodeProcess([]byte(value)); err == nil {
			t.Errorf("%q is decoded as %+v", value, p)
		}
	}
}
