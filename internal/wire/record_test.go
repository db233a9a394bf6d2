package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

var created = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// whole returns a message with every field and header that a record can have.
func whole(t testing.TB) wire.Message {
	t.Helper()
	m := must.Get(wire.Record{
		Order: orderclose.Order{
			ID: "ORD-17", Category: "virtual", CreatedAt: created, Due: created.Add(5 * time.Minute),
			Attributes: map[string]any{"shop": "eu"},
		},
		Release: created.Add(6 * time.Minute), Traceparent: "00-ab-cd-01",
		Attempt: 2, Cause: "timeout", NotDue: 3, Lane: wire.LaneReplay,
		PendingSince: created.Add(time.Hour), Origin: wire.Origin{Topic: "order-close", Partition: 11, Offset: 1 << 40},
	}.Encode())(t)
	return m
}

func TestEncode_WritesTheDocumentedBytes(t *testing.T) {
	want := wire.Message{
		Key: []byte("ORD-17"),
		Value: []byte(`{"order_id":"ORD-17","category":"virtual","created_at":"2026-03-01T12:00:00.000Z","due_at":"2026-03-01T12:05:00.000Z",` +
			`"attributes":{"shop":"eu"}}`),
		Headers: []wire.Header{
			{Key: "due", Value: []byte("1772366760000")}, {Key: "v", Value: []byte("1")},
			{Key: "traceparent", Value: []byte("00-ab-cd-01")}, {Key: "attempt", Value: []byte("2")},
			{Key: "cause", Value: []byte("timeout")}, {Key: "notdue", Value: []byte("3")}, {Key: "lane", Value: []byte("replay")},
			{Key: "pending-since", Value: []byte("1772370000000")}, {Key: "origin-topic", Value: []byte("order-close")},
			{Key: "origin-partition", Value: []byte("11")}, {Key: "origin-offset", Value: []byte("1099511627776")},
		},
	}
	expect.Same(t, whole(t), want, "the record")
}

// TestDeadline_TravelsOnlyIfItDiffers: a record has deadline_at only if it says more than due_at. What else stands
// there is no mistake, because no stage needs it.
func TestDeadline_TravelsOnlyIfItDiffers(t *testing.T) {
	due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	r := wire.Record{Order: orderclose.Order{ID: "o", CreatedAt: due, Due: due, Deadline: due.Add(-time.Minute)}, Release: due}
	m, err := r.Encode()
	expect.That(t, err == nil && strings.Contains(string(m.Value), `"deadline_at":"2030-01-02T03:03:05.000Z"`), "%s, %v", m.Value, err)
	if got, err := m.Decode(); err != nil || !got.Order.Deadline.Equal(r.Order.Deadline) {
		t.Errorf("decoded %+v, %v", got.Order, err)
	}
	for _, text := range []string{`"soon"`, `null`, `17`, `{}`} {
		other := m
		other.Value = []byte(strings.Replace(string(m.Value), `"2030-01-02T03:03:05.000Z"`, text, 1))
		got, err := other.Decode()
		expect.That(t, err == nil && got.Order.Deadline.IsZero(), "deadline_at is %s: %+v, %v", text, got.Order, err)
	}
	for _, same := range []time.Time{{}, due} {
		r.Order.Deadline = same
		m, err := r.Encode()
		expect.That(t, err == nil && !strings.Contains(string(m.Value), "deadline_at"), "%s, %v", m.Value, err)
	}
	r.Order.Deadline = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	expect.Says(t, expect.Err(r.Encode()), "deadline_at", "a deadline in the year 12000")
}

func TestEncode_OmitsUnsetFields(t *testing.T) {
	m := must.Get(wire.Record{Order: orderclose.Order{ID: "1", CreatedAt: created, Due: created}, Release: created}.Encode())(t)
	expect.That(t, len(m.Headers) == 2 && !strings.Contains(string(m.Value), "attributes"), "headers %v, value %s", m.Headers, m.Value)
}

func TestEncode_WritesUTCForAnyZone(t *testing.T) {
	zone := time.FixedZone("+08:00", 8*3600)
	o := orderclose.Order{ID: "1", CreatedAt: created.In(zone), Due: created.Add(time.Minute).In(zone)}
	m := must.Get(wire.Record{Order: o, Release: o.Due}.Encode())(t)
	const want = `{"order_id":"1","category":"","created_at":"2026-03-01T12:00:00.000Z","due_at":"2026-03-01T12:01:00.000Z"}`
	expect.Equal(t, string(m.Value), want, "the value")
}

func TestEncode_RejectsRecordsThatCannotBeDecoded(t *testing.T) {
	ok := orderclose.Order{ID: "1", CreatedAt: created, Due: created}
	attributes, early, late := ok, ok, ok
	attributes.Attributes = map[string]any{"f": math.NaN()}
	early.CreatedAt = created.AddDate(-3000, 0, 0)
	late.CreatedAt = time.Unix(created.UnixMilli(), 0) // milliseconds taken for seconds
	for _, o := range []orderclose.Order{attributes, early, late} {
		if m, err := (wire.Record{Order: o, Release: o.Due}).Encode(); err == nil {
			t.Errorf("%+v is encoded as %s", o, m.Value)
		} else if !strings.HasPrefix(err.Error(), `order "1": `) {
			t.Errorf("the error does not name the order: %v", err)
		}
	}
}

func TestEncode_RoundsDueUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		due := time.Unix(0, rapid.Int64Range(0, 4e18).Draw(t, "due"))
		m := must.Get(wire.Record{Order: orderclose.Order{ID: "1", CreatedAt: due, Due: due}, Release: due}.Encode())(t)
		r := must.Get(m.Decode())(t)
		for _, got := range []time.Time{r.Release, r.Order.Due} {
			up := got.Sub(due)
			must.That(t, up >= 0 && up < time.Millisecond, "due %v is encoded as %v", due, got)
		}
	})
}

func TestCeilMilli_RoundsUpAlsoBeforeTheEpoch(t *testing.T) {
	for ns, want := range map[int64]int64{0: 0, 1: 1, 999_999: 1, 1_000_000: 1, 1_000_001: 2, -1: 0, -999_999: 0, -1_000_000: -1, -1_000_001: -1} {
		expect.Equal(t, orderclose.CeilMilli(time.Unix(0, ns)).UnixMilli(), want, "%d ns in ms", ns)
	}
}

func TestDecode_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t)
		m := must.Get(want.Encode())(t)
		got, err := m.Decode()
		must.That(t, err == nil, "%v\nvalue %s\nheaders %q", err, m.Value, m.Headers)
		diff := cmp.Diff(want, got)
		must.That(t, diff == "", "(-want +got):\n%s", diff)
		if due, err := m.Due(); err != nil || !due.Equal(want.Release) {
			t.Fatalf("Due is %v, %v; want %v", due, err, want.Release)
		}
	})
}

// A retry decodes a record and encodes it again. The attributes stay the same, including numbers of any size.
func TestDecode_ThenEncodeKeepsAttributes(t *testing.T) {
	m := whole(t)
	m.Value = []byte(strings.Replace(string(m.Value), `{"shop":"eu"}`,
		`{"amount":10.50,"list":[1e400,null,true],"user":9007199254740993}`, 1))
	r := must.Get(m.Decode())(t)
	again := must.Get(r.Encode())(t)
	expect.Same(t, string(again.Value), string(m.Value), "the value after a round trip")
}

func TestDecode_NamesWhatMakesARecordUnreadable(t *testing.T) {
	header := func(key, value string) func(*wire.Message) {
		return func(m *wire.Message) {
			m.Headers = append(m.Headers, wire.Header{Key: key, Value: []byte(value)})
		}
	}
	replace := func(old, new string) func(*wire.Message) {
		return func(m *wire.Message) { m.Value = bytes.Replace(m.Value, []byte(old), []byte(new), 1) }
	}
	for _, row := range []struct {
		name   string
		spoil  func(*wire.Message)
		reason error
		detail string // its beginning
	}{
		{"no key", func(m *wire.Message) { m.Key = nil }, wire.ErrNoKey, "the key must be the order id"},
		{"no headers", func(m *wire.Message) { m.Headers = nil }, wire.ErrBadVersion, `header v is missing, want "1"`},
		{"other version", header("v", "2"), wire.ErrBadVersion, `header v is "2", want "1"`},
		{"due is no number", header("due", "soon"), wire.ErrBadDue, `header due is "soon", want unix milliseconds in decimal digits`},
		{"due is a fraction", header("due", "1.5"), wire.ErrBadDue, `header due is "1.5", want unix milliseconds in decimal digits`},
		{"due is too large", header("due", "9223372036854775808"), wire.ErrBadDue, `header due is "9223372036854775808", want unix milliseconds in decimal digits`},
		{"due is missing", func(m *wire.Message) { m.Headers = m.Headers[1:] }, wire.ErrBadDue, `header due is missing, want unix milliseconds in decimal digits`},
		{"due of eight bytes", header("due", "\x00\x00\x01\x9c\xaa\x1b\xc9\xe0"), wire.ErrBadDue,
			`header due is "\x00\x00\x01\x9c\xaa\x1b\xc9\xe0", want unix milliseconds in decimal digits`},
		{"due in quotes", header("due", `"1772366700000"`), wire.ErrBadDue, `header due is "\"1772366700000\"", want unix milliseconds in decimal digits`},
		{"no value", func(m *wire.Message) { m.Value = nil }, wire.ErrBadValue, "the value is empty, want a JSON object"},
		{"no JSON", func(m *wire.Message) { m.Value = []byte("<order/>") }, wire.ErrBadValue, "the value is not JSON: invalid character '<'"},
		{"JSON and more", func(m *wire.Message) { m.Value = append(m.Value, '{') }, wire.ErrBadValue, "the value is not JSON: invalid character '{' after"},
		{"half of it", func(m *wire.Message) { m.Value = m.Value[:9] }, wire.ErrBadValue, "the value is not JSON: unexpected end"},
		{"an array", func(m *wire.Message) { m.Value = []byte("[]") }, wire.ErrBadValue, "the value is an array, want a JSON object"},
		{"encoded twice", func(m *wire.Message) { m.Value = []byte(`"{\"order_id\":\"ORD-17\"}"`) }, wire.ErrBadValue, "the value is text, want a JSON object"},
		{"null", func(m *wire.Message) { m.Value = []byte("null") }, wire.ErrBadValue, `created_at is missing, null or empty, want text in RFC 3339`},
		{"id is a number", replace(`"ORD-17"`, `17`), wire.ErrBadValue, "order_id is a number, want text"},
		{"category is an object", replace(`"virtual"`, `{}`), wire.ErrBadValue, "category is an object, want text"},
		{"created_at is a number", replace(`"2026-03-01T12:00:00.000Z"`, `1772366400.123000000`), wire.ErrBadValue,
			`created_at is a number, want text in RFC 3339, such as 2`},
		{"created_at is null", replace(`"2026-03-01T12:00:00.000Z"`, `null`), wire.ErrBadValue, `created_at is missing, null or empty, want text in RFC 3339`},
		{"due_at is an array", replace(`"2026-03-01T12:05:00.000Z"`, `[2026,3,1,12,5]`), wire.ErrBadValue, `due_at is an array, want text in RFC 3339`},
		{"attributes are text", replace(`{"shop":"eu"}`, `"eu"`), wire.ErrBadValue, "attributes is text, want an object"},
		{"attributes are a boolean", replace(`{"shop":"eu"}`, `true`), wire.ErrBadValue, "attributes is a boolean, want an object"},
		{"created_at", replace(`2026-03-01T12:00:00.000Z`, `yesterday`), wire.ErrBadValue, `created_at is "yesterday", want text in RFC 3339`},
		{"due_at without zone", replace(`12:05:00.000Z`, `12:05:00.000`), wire.ErrBadValue, `due_at is "2026-03-01T12:05:00.000", want text in RFC 3339`},
		{"due_at with the name of a zone", replace(`12:05:00.000Z`, `12:05:00+08:00[Asia/Shanghai]`), wire.ErrBadValue,
			`due_at is "2026-03-01T12:05:00+08:00[Asia/Shanghai]", want text in RFC 3339`},
		{"another order's key", func(m *wire.Message) { m.Key = []byte("18") }, wire.ErrKeyMismatch, `order_id is "ORD-17", and the key is "18": want the same text`},
		{"no order_id", replace(`order_id`, `orderId`), wire.ErrKeyMismatch, `order_id is missing, null or empty, and the key is "ORD-17"`},
		{"attempt", header("attempt", "-1"), wire.ErrBadHeader, `header attempt is "-1", want a count`},
		{"notdue", header("notdue", ""), wire.ErrBadHeader, `header notdue is "", want a count`},
		{"pending-since", header("pending-since", "noon"), wire.ErrBadHeader, `header pending-since is "noon", want unix milliseconds in decimal digits`},
		{"origin", header("origin-offset", "-5"), wire.ErrBadHeader, `header origin-offset is "-5", want an offset`},
	} {
		m := whole(t)
		row.spoil(&m)
		r, err := m.Decode()
		_, short := m.DecodeWithoutAttributes()
		expect.That(t, short != nil && err != nil && short.Error() == err.Error(), "%s: without attributes the error is %v", row.name, short)
		var re *wire.RecordError
		if !errors.As(err, &re) || !errors.Is(err, row.reason) {
			t.Errorf("%s: got %+v, %v; want %v", row.name, r, err, row.reason)
		} else if !strings.HasPrefix(re.Detail, row.detail) {
			t.Errorf("%s:\n got %s\nwant %s…", row.name, re.Detail, row.detail)
		}
	}
}

func TestDecode_RejectsInvalidOrderIds(t *testing.T) {
	for _, id := range []string{strings.Repeat("x", 65), "a\nb", "a ", "\x7f"} {
		m := whole(t)
		m.Key = []byte(id)
		quoted := must.Get(json.Marshal(id))(t)
		m.Value = bytes.Replace(m.Value, []byte(`"ORD-17"`), quoted, 1)
		_, err := m.Decode()
		expect.That(t, errors.Is(err, wire.ErrBadValue) && strings.HasPrefix(err.Error(), "bad_value: order_id: order "), "%q: %v", id, err)
	}
}

func TestDecode_ReadsRecordsOfOtherLanguages(t *testing.T) {
	m := wire.Message{
		Key: []byte("订单-17"),
		Value: []byte(` { "due_at": "2026-03-01T20:05:00+08:00", "order_id": "\u8ba2\u5355-17",
			"created_at": "2026-03-01T12:00:00.123456Z", "extra": [1], "attributes": null } `),
		Headers: []wire.Header{
			{Key: "other", Value: nil}, {Key: "due", Value: []byte("5")},
			{Key: "v", Value: []byte("1")}, {Key: "due", Value: []byte("1772366700000")}, // the last one counts
		},
	}
	r := must.Get(m.Decode())(t)
	due := created.Add(5 * time.Minute)
	expect.That(t, r.Order.ID == "订单-17" && r.Order.Due.Equal(due) && r.Release.Equal(due) && r.Order.Category == "", "got %+v", r)
}

// FuzzDecode checks that no input makes Decode panic, and that a decoded record can be encoded again.
func FuzzDecode(f *testing.F) {
	m := whole(f)
	for _, attributes := range []string{"null", "{}", `{"n": {"m": [1, 2.5e400]}}`, "[]", `"text"`, "1", "true"} {
		f.Add([]byte("1"), []byte(`{"order_id":"1","created_at":"2026-01-01T00:00:00Z","due_at":"2026-01-01T00:05:00Z", "attributes": `+attributes+`}`),
			"1772366760000", "1", "attempt", "2")
	}
	f.Add(m.Key, m.Value, "1772366760000", "1", "attempt", "2")
	f.Add([]byte{}, []byte("null"), "-9223372036854775808", "", "notdue", "99999999999")
	f.Add([]byte("1"), []byte(`{"order_id":"1","created_at":"0000-01-01T00:00:00Z","due_at":"9999-12-31T23:59:59.9999Z"}`), "9223372036854775807", "1", "v", "1")
	f.Fuzz(func(t *testing.T, key, value []byte, due, version, name, other string) {
		m := wire.Message{Key: key, Value: value, Headers: []wire.Header{
			{Key: "due", Value: []byte(due)}, {Key: "v", Value: []byte(version)}, {Key: name, Value: []byte(other)},
		}}
		release, dueErr := m.Due()
		r, err := m.Decode()
		without, withoutErr := m.DecodeWithoutAttributes()
		if r.Order.Attributes = nil; (err == nil) != (withoutErr == nil) || !reflect.DeepEqual(r, without) {
			t.Fatalf("%+v, %v with attributes; %+v, %v without", r, err, without, withoutErr)
		}
		r, _ = m.Decode()
		var re *wire.RecordError
		switch {
		case err != nil && !errors.As(err, &re):
			t.Fatalf("%v is not a *RecordError", err)
		case err == nil && (dueErr != nil || !release.Equal(r.Release)):
			t.Fatalf("Decode says %v, Due %v, %v", r.Release, release, dueErr)
		case err == nil:
			must.Do(t, orderclose.ValidateID(r.Order.ID))
			again, err := r.Encode()
			if err != nil {
				return // a year that only the parser accepts, such as 0000 in another zone
			}
			if _, err := again.Decode(); err != nil {
				t.Fatalf("%s is decoded, and encoded as %s: %v", value, again.Value, err)
			}
		}
		// A record with any due time stays in its bucket for at most the bucket's length.
		if dueErr == nil {
			b := orderclose.Bucket{Length: time.Minute}
			if got := b.Release(release, created); got.After(created.Add(time.Minute)) || got.Before(release) && got.Before(created.Add(time.Minute)) {
				t.Fatalf("due %v is released at %v", release, got)
			}
		}
		wire.DeadLetter(m, "relay", "bad_value", "")
	})
}

func drawRecord(t *rapid.T) wire.Record {
	milli := rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMilli(rapid.Int64Range(-1e12, 1e14).Draw(t, "ms")).UTC()
	})
	word := rapid.StringN(0, 20, 60)
	r := wire.Record{
		Order: orderclose.Order{
			ID:        rapid.StringN(1, 16, 64).Filter(func(s string) bool { return orderclose.ValidateID(s) == nil }).Draw(t, "id"),
			Category:  word.Draw(t, "category"),
			CreatedAt: milli.Draw(t, "created"),
			Due:       milli.Draw(t, "due"),
		},
		Release:     milli.Draw(t, "release").Local(),
		Traceparent: word.Draw(t, "traceparent"),
		Attempt:     rapid.IntRange(0, math.MaxInt32).Draw(t, "attempt"),
		Cause:       word.Draw(t, "cause"),
		NotDue:      rapid.IntRange(0, math.MaxInt32).Draw(t, "notdue"),
		Lane:        rapid.SampledFrom([]string{"", wire.LaneReplay}).Draw(t, "lane"),
	}
	if rapid.Bool().Draw(t, "pending") {
		r.PendingSince = time.UnixMilli(rapid.Int64Range(1, 1e14).Draw(t, "since"))
	}
	if topic := word.Draw(t, "origin"); topic != "" {
		r.Origin = wire.Origin{Topic: topic, Partition: rapid.IntRange(0, 10_000).Draw(t, "partition"), Offset: rapid.Int64Range(0, math.MaxInt64).Draw(t, "offset")}
	}
	if attributes := rapid.MapOf(rapid.StringOf(rapid.RuneFrom(nil, unicode.L, unicode.N)), rapid.String()).Draw(t, "attributes"); len(attributes) > 0 {
		r.Order.Attributes = map[string]any{}
		for k, v := range attributes {
			r.Order.Attributes[k] = v
		}
	}
	return r
}

func BenchmarkDecode(b *testing.B) {
	m := whole(b)
	for name, decode := range map[string]func() (wire.Record, error){"whole": m.Decode, "without attributes": m.DecodeWithoutAttributes} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must.Get(decode())(b)
			}
		})
	}
}

// The result is the same for a dead letter, and for a record that was sent again before.
func TestSentAgain_GoesToTheReplayLaneWithoutAttempts(t *testing.T) {
	want := []wire.Header{
		{Key: "due", Value: []byte("1772366760000")}, {Key: "v", Value: []byte("1")},
		{Key: "traceparent", Value: []byte("00-ab-cd-01")}, {Key: "lane", Value: []byte("replay")},
	}
	m := whole(t)
	m.Topic = "order-close"
	dead := wire.DeadLetter(m, "closer", "failed", "no stock row")
	for name, from := range map[string]wire.Message{"a record": m, "a dead letter": dead, "twice": m.Resend()} {
		count := len(from.Headers)
		again := from.Resend()
		if diff := cmp.Diff(want, again.Headers); diff != "" || string(again.Value) != string(m.Value) || len(from.Headers) != count {
			t.Errorf("%s, value %s (-want +got):\n%s", name, again.Value, diff)
		}
		r, err := again.Decode()
		expect.That(t, err == nil && r.Attempt == 0 && r.Lane == wire.LaneReplay && r.Origin.Topic == "", "%s: %+v, %v", name, r, err)
	}
}
