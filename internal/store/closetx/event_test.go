package closetx

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestWholeEvent(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 7e6, time.UTC)
	for name, e := range map[string]orderclose.OrderClosed{
		"all": {
			Type: "order.receipt_confirmed", OrderID: `o/1 "订"`, Category: "ink", Due: at.Add(-time.Minute), ClosedAt: at,
			Path: orderclose.PathSweep, Attempts: 2, Version: 3,
			Release: []orderclose.Release{
				{SKU: "a", Quantity: 1, Key: wire.ReleaseKey(`o/1 "订"`, "a", "close")},
				{SKU: "b", Quantity: 1 << 60, Key: wire.ReleaseKey(`o/1 "订"`, "b", "close")},
			},
		},
		"little": {OrderID: "o", Due: at, ClosedAt: at, Path: orderclose.PathPipeline},
	} {
		t.Run(name, func(t *testing.T) {
			returned := map[string]int64{}
			for _, r := range e.Release {
				returned[r.SKU] = r.Quantity
			}
			kept := must.Get(EncodeKept(e, returned, ""))(t)
			want := must.Get(e.Encode())(t)
			expect.That(t, len(kept)*2 <= len(want), "it takes %d bytes of the event's %d", len(kept), len(want))
			got := string(ExpandEvent(e.OrderID, []byte(kept)))
			expect.That(t, got == string(want), "%s comes back as\n%s\nwant\n%s", kept, got, want)
		})
	}
}

func TestWholeEvent_ReturnsAnyOtherPayloadUnchanged(t *testing.T) {
	whole := must.Get(orderclose.OrderClosed{OrderID: "o", Path: orderclose.PathPipeline}.Encode())(t)
	for _, payload := range []string{string(whole), "", "{", "[]", "null", `{"due_at":7}`, `{"event":""}`, strings.Repeat("x", 1000)} {
		got := string(ExpandEvent("o", []byte(payload)))
		expect.That(t, got == payload, "%.50q becomes %.50q", payload, got)
	}
}

// The trace context of a close becomes a header, and is no part of the event.
func TestWholeEvent_GivesTheTraceContextApart(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	e := orderclose.OrderClosed{OrderID: "o", Path: orderclose.PathPipeline}
	want, err1 := e.Encode()
	kept, err2 := EncodeKept(e, nil, trace)
	got, traceparent := ExpandTraced("o", []byte(kept))
	expect.That(t, err1 == nil && err2 == nil && traceparent == trace && string(got) == string(want),
		"%v, %v, %q\n%s\nwant\n%s", err1, err2, traceparent, got, want)
	if _, traceparent = ExpandTraced("o", want); traceparent != "" {
		t.Errorf("without one it is %q", traceparent)
	}
}

// A service that closes orders itself writes events by docs/http.md.
func TestWholeEvent_CompletesThePayloadOfTheDocumentation(t *testing.T) {
	block := func(file, name string) string {
		data := must.Get(os.ReadFile("../../../docs/" + file))(t)
		_, rest, _ := strings.Cut(string(data), "```json "+name+"\n")
		body, _, _ := strings.Cut(rest, "\n```")
		must.That(t, strings.HasPrefix(body, "{"), "%s has no block %q", file, name)
		return body
	}
	short, whole := block("http.md", "payload"), block("http.md", "cloudevent")
	got, want := string(ExpandEvent("ORD-20260301-000017", []byte(short))), block("wire.md", "event")
	expect.That(t, got == want, "the payload becomes\n%s\nwire.md has\n%s", got, want)
	id, e, err := orderclose.DecodeOrderClosed([]byte(whole))
	if got := string(ExpandEvent("ORD-20260301-000018", []byte(whole))); got != whole || err != nil || id != e.ID() || e.OrderID != "ORD-20260301-000018" {
		t.Errorf("the CloudEvent %q, %+v, %v becomes\n%s", id, e, err, got)
	}
	doc, _ := os.ReadFile("../../../docs/http.md")
	for _, length := range []int{len(short), len(whole)} {
		expect.That(t, strings.Contains(string(doc), fmt.Sprintf("here %d bytes", length)),
			"http.md does not contain %q", fmt.Sprintf("here %d bytes", length))
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[keptEvent]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		expect.That(t, strings.Contains(string(doc), "\n| `"+name+"` |"), "http.md does not list the field %s", name)
	}
}
