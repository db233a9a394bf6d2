package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// anyMessage draws a message with arbitrary contents.
func anyMessage(t *rapid.T) Message {
	m := Message{Offset: rapid.Int64Range(0, 1<<40).Draw(t, "offset"), Appended: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "appended"))}
	bytes := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
	m.Key, m.Value = bytes.Draw(t, "key"), bytes.Draw(t, "value")
	name := rapid.OneOf(rapid.SampledFrom([]string{HeaderDue, HeaderVersion, HeaderLane}), rapid.StringN(0, 10, 20))
	value := rapid.OneOf(rapid.SampledFrom([][]byte{[]byte("1"), []byte("42"), []byte(LaneReplay), []byte("-7"), []byte("+7"), []byte("9999999999999999999"), nil}), bytes)
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
		if diff := cmp.Diff(m, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
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
		got, replay, err := m.Raw().Route()
		if lane, _ := m.Header(HeaderLane); err == nil && replay != (lane == LaneReplay) {
			t.Fatalf("replay is %v, but the lane is %q", replay, lane)
		}
		if (err == nil) != (wantErr == nil) || err == nil && got != want.UnixMilli() {
			t.Fatalf("%d, %v; want %d, %v", got, err, want.UnixMilli(), wantErr)
		}
		if err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("%v, want %v", err, wantErr)
		}
	})
}

func TestRaw_TheMessageSharesNoMemoryWithTheBody(t *testing.T) {
	m := Message{Key: []byte("key"), Value: []byte("value")}
	raw := m.Raw()
	got, _ := raw.Message()
	clear(raw.Body)
	if string(got.Key) != "key" || string(got.Value) != "value" {
		t.Errorf("changed to %q %q", got.Key, got.Value)
	}
}

func FuzzRaw(f *testing.F) {
	m := Message{Key: []byte("o"), Value: []byte("{}"), Headers: []Header{{"due", []byte("42")}, {"v", []byte("1")}}}
	f.Add(m.Raw().Body)
	f.Add([]byte{})
	f.Add([]byte{1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		raw := RawRecord{Body: b}
		_, _, dueErr := raw.Route()
		if _, err := raw.Message(); err != nil && (!errors.Is(err, ErrMalformed) || !errors.Is(dueErr, ErrMalformed)) {
			t.Fatalf("%v, %v", err, dueErr)
		}
	})
}
