package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
)

// The row of any order yields the record that Schedule would have sent directly.
func TestSchedule_YieldsTheRecordOfItsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := orderclose.Order{
			ID:        rapid.StringMatching(`[a-z一-九][a-z0-9 <>&一-九]{0,18}[a-z]`).Draw(t, "id"),
			Category:  rapid.String().Draw(t, "category"),
			CreatedAt: time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "created")),
			Due:       time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "due")),
		}
		if rapid.Bool().Draw(t, "attributes") {
			o.Attributes = map[string]any{"n": rapid.Int64().Draw(t, "n"), "s": rapid.String().Draw(t, "s")}
		}
		r := Record{Order: o, Release: o.Due, Traceparent: rapid.StringMatching(`|00-[0-9a-f]{32}-[0-9a-f]{16}-01`).Draw(t, "traceparent")}
		want, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		payload, err := r.SchedulePayload()
		if err != nil {
			t.Fatal(err)
		}
		m, due, err := OutboxRow{OrderID: o.ID, Payload: payload}.Schedule()
		if diff := cmp.Diff(want, m); err != nil || diff != "" || !due.Equal(orderclose.CeilMilli(o.Due)) {
			t.Fatalf("due %v, %v (-want +got):\n%s", due, err, diff)
		}
	})
}

func TestSchedule_NamesWhatMakesARowUnreadable(t *testing.T) {
	const times = `"created_at":"2026-03-01T12:00:00Z","due_at":"2026-03-01T20:05:00+08:00"`
	for payload, want := range map[string]error{
		``:                               ErrBadValue,
		`[]`:                             ErrBadValue,
		`{"order_id":"o"}`:               ErrBadValue,
		`{"order_id":"p",` + times + `}`: ErrKeyMismatch,
		`{"order_id":"o",` + times + `,"attributes":[]}`: ErrBadValue,
		`{"order_id":"o",` + times + `,"traceparent":7}`: ErrBadValue,
		`{"order_id":"o",` + times + `,"mine":7}`:        nil,
	} {
		m, due, err := OutboxRow{OrderID: "o", Payload: []byte(payload)}.Schedule()
		if why := (*RecordError)(nil); want != nil && (!errors.Is(err, want) || !errors.As(err, &why)) {
			t.Errorf("%s: %v, want %v", payload, err, want)
		}
		if v, _ := m.Header(HeaderDue); want == nil && (err != nil || v != "1772366700000" || due.UnixMilli() != 1772366700000 || string(m.Value) != payload) {
			t.Errorf("%s: %+v due %v, %v", payload, m, due, err)
		}
	}
}
