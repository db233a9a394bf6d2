package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// anyMessage draws a message with arbitrary contents.
func anyMessage(t *rapid.T) Message {
	m := Message{Offset: rapid.Int64Range(0, 1<<40).Draw(t, "offset"), Appended: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "appended"))}
	bytes := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
	m.Key, m.Value = bytes.Draw(t, "key"), bytes.Draw(t, "value")
	name := rapid.OneOf(rapid.SampledFrom([]string{HeaderDue, HeaderVersion, HeaderLane}), rapid.StringN(0, 10, 20))
	value := rapid.OneOf(rapid.SampledFrom([][]byte{[]byte("1"), []byte("42"), []byte(LaneReplay), []byte("-7"), []byte("+7"),
		[]byte("9999999999999999999"), nil}), bytes)
	for range rapid.IntRange(0, 5).Draw(t, "headers") {
		m.Headers = append(m.Headers, Header{name.Draw(t, "name"), value.Draw(t, "header")})
	}
	return m
}

func TestRaw_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMessage(t)
		raw := m.Raw()
		got, err := raw.Message()
		diff := cmp.Diff(m, got)
		must.That(t, err == nil && diff == "", "%v (-want +got):\n%s", err, diff)
		if string(raw.Key()) != string(m.Key) {
			t.Fatalf("key %q, want %q", raw.Key(), m.Key)
		}
	})
}

// The headers include malformed and repeated ones.
func TestRaw_RouteAgreesWithTheDecodedMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMessage(t)
		want, wantErr := m.Due()
		got, err := m.Raw().Route()
		lane, _ := m.Header(HeaderLane)
		must.That(t, m.Raw().IsCopy() == (lane == LaneReplay), "it is a copy: %v, but the lane is %q", m.Raw().IsCopy(), lane)
		must.That(t, (err == nil) == (wantErr == nil) && (err != nil || got == want.UnixMilli()), "%d, %v; want %d, %v", got, err, want.UnixMilli(), wantErr)
		must.That(t, err == nil || err.Error() == wantErr.Error(), "%v, want %v", err, wantErr)
	})
}

func TestRaw_TheMessageSharesNoMemoryWithTheBody(t *testing.T) {
	m := Message{Key: []byte("key"), Value: []byte("value")}
	raw := m.Raw()
	got, _ := raw.Message()
	clear(raw.Body)
	expect.That(t, string(got.Key) == "key" && string(got.Value) == "value", "changed to %q %q", got.Key, got.Value)
}

func FuzzRaw(f *testing.F) {
	m := Message{Key: []byte("o"), Value: []byte("{}"), Headers: []Header{{"due", []byte("42")}, {"v", []byte("1")}}}
	f.Add(m.Raw().Body)
	f.Add([]byte{})
	f.Add([]byte{1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		raw := RawRecord{Body: b}
		_, dueErr := raw.Route()
		_, err := raw.Message()
		must.That(t, err == nil || (errors.Is(err, ErrMalformed) && errors.Is(dueErr, ErrMalformed)), "%v, %v", err, dueErr)
	})
}

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
		must.Do(t, err)
		payload, err := r.SchedulePayload()
		must.Do(t, err)
		m, due, err := OutboxRow{OrderID: o.ID, Payload: payload}.Schedule()
		diff := cmp.Diff(want, m)
		must.That(t, err == nil && diff == "" && due.Equal(orderclose.CeilMilli(o.Due)), "due %v, %v (-want +got):\n%s", due, err, diff)
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
		why := (*RecordError)(nil)
		expect.That(t, want == nil || (errors.Is(err, want) && errors.As(err, &why)), "%s: %v, want %v", payload, err, want)
		if v, _ := m.Header(HeaderDue); want == nil && (err != nil || v != "1772366700000" || due.UnixMilli() != 1772366700000 || string(m.Value) != payload) {
			t.Errorf("%s: %+v due %v, %v", payload, m, due, err)
		}
	}
}
