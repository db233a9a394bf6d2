package store

import (
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
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
			kept, err := encodeKept(e)
			if err != nil {
				t.Fatal(err)
			}
			want, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if len(kept)*2 > len(want) {
				t.Errorf("it takes %d bytes of the event's %d", len(kept), len(want))
			}
			if got := string(ExpandEvent(e.OrderID, []byte(kept))); got != string(want) {
				t.Errorf("%s comes back as\n%s\nwant\n%s", kept, got, want)
			}
		})
	}
}

func TestWholeEvent_ReturnsAnyOtherPayloadUnchanged(t *testing.T) {
	whole, err := orderclose.OrderClosed{OrderID: "o", Path: orderclose.PathPipeline}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{string(whole), "", "{", "[]", "null", `{"due_at":7}`, `{"event":""}`, strings.Repeat("x", 1000)} {
		if got := string(ExpandEvent("o", []byte(payload))); got != payload {
			t.Errorf("%.50q becomes %.50q", payload, got)
		}
	}
}
