package wire

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
)

func TestShadowVerdict_IsDecodedAsItWasEncoded(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 3_000_000, time.UTC)
	far := time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC) // JSON has no such year
	for _, v := range []ShadowVerdict{
		{"o-1", orderclose.Closed, at, at.Add(time.Second), orderclose.PathPipeline},
		{"o-2", orderclose.NotFound, time.Time{}, at, orderclose.PathPipeline},
		{"o-3", orderclose.NotDue, far, at, orderclose.PathPipeline},
	} {
		m := v.Encode()
		got, err := DecodeShadowVerdict(m.Value)
		if v.Due.Equal(far) {
			v.Due = time.Time{}
		}
		if err != nil || got != v || string(m.Key) != v.OrderID {
			t.Errorf("%s: %+v, %v; want %+v", m.Key, got, err, v)
		}
	}
}

func TestDecodeShadowVerdict_RefusesOtherRecords(t *testing.T) {
	for _, value := range []string{"", "[]", "{}", `{"order_id":"a","verdict":"closed"}`, `{"order_id":"a","at":"2026-11-20T12:00:00Z"}`, `{"order_id":"a","verdict":"closed","at":"noon"}`} {
		if v, err := DecodeShadowVerdict([]byte(value)); err == nil {
			t.Errorf("%q is decoded as %+v", value, v)
		}
	}
}
