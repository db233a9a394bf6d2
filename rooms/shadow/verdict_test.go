package shadow

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestVerdict_IsDecodedAsItWasEncoded(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 3_000_000, time.UTC)
	far := time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC) // JSON has no such year
	for _, v := range []Verdict{
		{"o-1", orderclose.Closed, at, at.Add(time.Second), orderclose.PathPipeline},
		{"o-2", orderclose.NotFound, time.Time{}, at, orderclose.PathPipeline},
		{"o-3", orderclose.NotDue, far, at, orderclose.PathPipeline},
	} {
		m := v.Encode()
		got, err := DecodeVerdict(m.Value)
		if v.Due.Equal(far) {
			v.Due = time.Time{}
		}
		expect.That(t, err == nil && got == v && string(m.Key) == v.OrderID, "%s: %+v, %v; want %+v", m.Key, got, err, v)
	}
}

func TestDecodeVerdict_RefusesOtherRecords(t *testing.T) {
	for _, value := range []string{"", "[]", "{}", `{"order_id":"a","verdict":"closed"}`, `{"order_id":"a","at":"2026-11-20T12:00:00Z"}`,
		`{"order_id":"a","verdict":"closed","at":"noon"}`} {
		v, err := DecodeVerdict([]byte(value))
		expect.That(t, err != nil, "%q is decoded as %+v", value, v)
	}
}

func TestWire_TheVerdictOfAShadowRunEqualsTheCode(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 5, 0, 0, time.UTC)
	v := Verdict{OrderID: "ORD-20260301-000017", Verdict: orderclose.Closed, Due: at, At: at.Add(3 * time.Millisecond), Path: orderclose.PathPipeline}
	m := v.Encode()
	doc := must.Get(os.ReadFile("../../docs/wire.md"))(t)
	expect.That(t, strings.Contains(string(doc), "```json shadow\n"+string(m.Value)+"\n```") && string(m.Key) == v.OrderID,
		"key %s; wire.md does not have %s", m.Key, m.Value)
}
