package orderclose_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestOrderClosed_RoundTrip(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 30, 0, 123e6, time.UTC)
	want := orderclose.OrderClosed{
		OrderID: "o/1", Category: "virtual", Due: at.Add(-time.Second), ClosedAt: at, Path: orderclose.PathSweep, Attempts: 2, Version: 2,
		Release: []orderclose.Release{{SKU: "a", Quantity: 3, Key: wire.ReleaseKey("o/1", "a", "close")}},
	}
	value := must.Get(want.Encode())(t)
	id, got, err := orderclose.DecodeOrderClosed(value)
	must.That(t, err == nil && id == "order.closed/o/1", "id %q, err %v", id, err)
	diff := cmp.Diff(want, got)
	expect.That(t, diff == "", "%v", diff)
	var generic map[string]any
	must.Do(t, json.Unmarshal(value, &generic))
	for key, want := range map[string]any{
		"specversion": "1.0", "id": id, "source": "/orderclose", "type": "order.closed", "subject": "o/1",
		"time": "2026-11-20T10:30:00.123Z", "datacontenttype": "application/json",
	} {
		if generic[key] != want {
			t.Errorf("%s is %v, want %v", key, generic[key], want)
		}
	}
}

func TestDecodeOrderClosed_RejectsOtherValues(t *testing.T) {
	for value, other := range map[string]bool{
		``: false, `7`: false, `{}`: false, `{"specversion":"0.3","id":"a","type":"order.closed"}`: false,
		`{"specversion":"1.0","id":"a","type":"order.closed","data":7}`: false,
		`{"specversion":"1.0","id":"a","type":"order.paid","data":{}}`:  true,
	} {
		_, _, err := orderclose.DecodeOrderClosed([]byte(value))
		expect.That(t, errors.Is(err, orderclose.ErrOtherEvent) == other && errors.Is(err, orderclose.ErrBadEvent) != other, "%s: %v", value, err)
	}
}

func TestReleaseKey_IsUnique(t *testing.T) {
	a, b := wire.ReleaseKey("a/1", "b", "close"), wire.ReleaseKey("a", "1/b", "close")
	expect.That(t, a != b, "%v", a)
}

func TestDecodeClosed_DecodesOnlyTheGivenType(t *testing.T) {
	const confirmed = "order.receipt_confirmed"
	e := orderclose.OrderClosed{Type: confirmed, OrderID: "a", Path: orderclose.PathSweep}
	value := must.Get(e.Encode())(t)
	if id, got, err := orderclose.DecodeClosed(value, confirmed); err != nil || id != confirmed+"/a" || got.Type != confirmed || got.OrderID != "a" {
		t.Errorf("%q, %+v, %v", id, got, err)
	}
	if _, _, err := orderclose.DecodeOrderClosed(value); !errors.Is(err, orderclose.ErrOtherEvent) {
		t.Errorf("decoded as order.closed: %v", err)
	}
}
