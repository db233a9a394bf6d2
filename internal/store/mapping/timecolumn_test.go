package mapping

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func codec(t testing.TB, m TimeColumn) Codec {
	t.Helper()
	m.Column = "due"
	c := must.Get(m.Codec())(t)
	return c
}

func utc(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05.999999", text)
	if err != nil {
		panic(err)
	}
	return t
}

func TestArg_IsRoundedDownInTheColumnsZone(t *testing.T) {
	at := utc("2026-11-20 16:00:05.700900")
	for _, c := range []struct {
		column TimeColumn
		want   any
	}{
		{TimeColumn{Type: DateTime, Zone: "UTC", Precision: Millis}, "2026-11-20 16:00:05.700"},
		{TimeColumn{Type: DateTime, Zone: "+08:00", Precision: Seconds}, "2026-11-21 00:00:05"},
		{TimeColumn{Type: DateTime, Zone: "-05:30", Precision: Micros}, "2026-11-20 10:30:05.700900"},
		{TimeColumn{Type: DateTime, Zone: "Asia/Shanghai", Precision: Seconds}, "2026-11-21 00:00:05"},
		{TimeColumn{Type: Timestamp, Precision: Millis}, "2026-11-20 16:00:05.700"},
		{TimeColumn{Type: UnixSeconds}, at.Unix()},
		{TimeColumn{Type: UnixMillis}, at.UnixMilli()},
	} {
		expect.Equal(t, codec(t, c.column).Arg(at), c.want, "%+v", c.column)
	}
}

func TestDecode_AValueThatIsNotATime(t *testing.T) {
	for _, c := range []struct {
		column TimeColumn
		src    any
		bad    bool
	}{
		{TimeColumn{Type: DateTime, Zone: "UTC"}, nil, false},
		{TimeColumn{Type: DateTime, Zone: "UTC"}, time.Time{}, false},
		{TimeColumn{Type: UnixSeconds}, int64(0), false},
		{TimeColumn{Type: UnixMillis}, []byte("0"), false},
		{TimeColumn{Type: UnixMillis}, time.Now(), true},
		{TimeColumn{Type: DateTime, Zone: "UTC"}, int64(7), true},
		{TimeColumn{Type: Timestamp}, "soon", true},
	} {
		at, ok, err := codec(t, c.column).Decode(c.src)
		expect.That(t, !ok && at.IsZero() && (err != nil) == c.bad, "%+v holding %v: %v, %v, %v", c.column, c.src, at, ok, err)
	}
}

// In New York, clocks go from 02:00 to 03:00 on 8 March 2026, and from 02:00 back to 01:00 on 1 November.
func TestDecode_AnAmbiguousOrMissingLocalTimeIsTheLaterOne(t *testing.T) {
	c := codec(t, TimeColumn{Type: DateTime, Zone: "America/New_York", Precision: Seconds})
	for wall, want := range map[string]string{
		"2026-03-08 01:59:59": "2026-03-08 06:59:59",
		"2026-03-08 02:30:00": "2026-03-08 07:30:00", // never shown: 01:30 and an hour, as if the clocks had not changed
		"2026-03-08 03:00:00": "2026-03-08 07:00:00",
		"2026-11-01 00:59:59": "2026-11-01 04:59:59",
		"2026-11-01 01:30:00": "2026-11-01 06:30:00", // shown at 05:30 too
		"2026-11-01 02:00:00": "2026-11-01 07:00:00",
	} {
		got, ok, err := c.Decode(utc(wall))
		expect.That(t, err == nil && ok && got.Equal(utc(want)), "%s there is %v, %v, %v; want %s", wall, got, ok, err, want)
	}
}

// In any zone: an order that is due as decoded passes the comparison of the column with the time, and no order passes both before it is due.
func TestCodec_NoOrderIsEarlyAndNoneIsRefusedForever(t *testing.T) {
	zones := []string{"UTC", "+08:00", "-03:30", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"}
	from, to := utc("2020-01-01 00:00:00"), utc("2030-01-01 00:00:00")
	rapid.Check(t, func(t *rapid.T) {
		m := TimeColumn{
			Column: "due", Type: DateTime, Zone: rapid.SampledFrom(zones).Draw(t, "zone"),
			Precision: rapid.SampledFrom(Precisions()).Draw(t, "precision"),
		}
		c := must.Get(m.Codec())(t)
		wall := time.UnixMicro(rapid.Int64Range(from.UnixMicro(), to.UnixMicro()).Draw(t, "wall")).UTC().Truncate(c.step)
		due, _, err := c.Decode(wall)
		must.Do(t, err)
		for _, late := range []time.Duration{0, time.Millisecond, time.Second, time.Hour, 3 * time.Hour} {
			now := due.Add(late)
			must.That(t, !now.Before(due), "the test is wrong")
			at, stored := c.Arg(now).(string), wall.Format(layoutOf(m))
			must.That(t, at >= stored, "%s is due at %v, and at %v it is compared with %s", stored, due, now, at)
		}
		again, _, _ := c.Decode(utc(c.Arg(due).(string)))
		must.That(t, !again.Before(due), "%v is written as %v, which is before", due, again)
	})
}

func layoutOf(m TimeColumn) string {
	return map[Precision]string{Seconds: "2006-01-02 15:04:05", Millis: "2006-01-02 15:04:05.000", Micros: "2006-01-02 15:04:05.000000"}[m.Precision]
}

func TestParseZone_HasNoDefault(t *testing.T) {
	for _, zone := range []string{"", "Local", "local", "+8:00", "+25:00", "+08:60", "Mars/Base", "8"} {
		loc, err := ParseZone(zone)
		expect.That(t, err != nil, "%q is %v", zone, loc)
	}
	expect.Equal(t, must.Get(ParseZone("utc"))(t), time.UTC, "utc")
}

func TestCodec_OfPostgreSQL(t *testing.T) {
	c := must.Get((&TimeColumn{Column: "due", Type: TimestampTZ, Precision: Millis}).Codec())(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	expect.Equal(t, c.Arg(at.In(time.FixedZone("", 8*3600))), "2026-01-02 03:04:05.678+00", "an argument")
	for _, want := range []struct {
		from any
		at   time.Time
		ok   bool
	}{
		{at.In(time.FixedZone("", -5*3600)), at, true}, // a driver may read it in any zone
		{"infinity", orderclose.NeverDue, true},
		{"-infinity", time.Time{}, false},
	} {
		got, ok, err := c.Decode(want.from)
		expect.That(t, err == nil && ok == want.ok && got.Equal(want.at) && got.Location() == time.UTC, "%v is read as %v, %v, %v; want %v, %v",
			want.from, got, ok, err, want.at, want.ok)
	}
	if _, _, err := c.Decode("soon"); err == nil {
		t.Error("a text is read as a time")
	}
}
