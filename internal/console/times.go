package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/health"
)

// zoneCookie keeps the name of the time zone that a person has chosen.
const zoneCookie = "orderclose-zone"

// zoneNamed returns the zone of a name such as Asia/Shanghai, or UTC if there is no such zone.
func zoneNamed(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil || zone == time.Local { // that of the server is not that of the reader
		return time.UTC
	}
	return zone
}

// zoneOf returns the zone that the sender of a request has chosen; UTC if there is none.
func zoneOf(r *http.Request) *time.Location {
	if cookie, err := r.Cookie(zoneCookie); err == nil {
		return zoneNamed(cookie.Value)
	}
	return time.UTC
}

// in returns a moment in the zone of the page.
func (p page) in(t time.Time) time.Time { return t.In(cmp.Or(p.Zone, time.UTC)) }

// ZoneName returns the name of the zone of the page.
func (p page) ZoneName() string { return p.in(time.Now()).Location().String() }

// Offset returns how far the zone of the page is from UTC now, such as UTC+08:00; UTC for 0.
func (p page) Offset() string { return offset(p.in(time.Now())) }

func offset(t time.Time) string { return "UTC" + strings.TrimSuffix(t.Format("-07:00"), "+00:00") }

// format formats a moment for people, in the zone of the page; empty for no moment. A moment whose offset
// is not the present one has it behind it.
func (p page) format(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	text := p.in(t).Format(layout)
	if other := offset(p.in(t)); other != p.Offset() {
		text += " (" + other + ")"
	}
	return text
}

// Time formats a moment for people, to the second.
func (p page) Time(t time.Time) string { return p.format(t, time.DateTime) }

// Millis is Time with milliseconds.
func (p page) Millis(t time.Time) string { return p.format(t, time.DateTime+".000") }

// Short is Time without what the reader knows: without the date today, and always without the year.
func (p page) Short(t time.Time) string {
	if p.in(t).Format(time.DateOnly) == p.in(time.Now()).Format(time.DateOnly) {
		return p.format(t, time.TimeOnly)
	}
	return p.format(t, "01-02 15:04:05")
}

// Tick formats a moment for the axis of a chart.
func (p page) Tick(t time.Time, layout string) string { return p.in(t).Format(layout) }

// Machine formats a moment for the attribute datetime.
func (page) Machine(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// inUTC returns the fields of a form with the moments of the field since in UTC. A moment that has no offset is in the zone.
// A text that is no moment stays as it is, so that the form can be shown again.
func inUTC(fields url.Values, zone *time.Location) url.Values {
	fields = maps.Clone(fields)
	for i, value := range fields["since"] {
		if t, err := momentIn(zone, "since", value); err == nil { //mutant:console-time-utc
			fields["since"] = slices.Replace(slices.Clone(fields["since"]), i, i+1, t.Format(time.RFC3339Nano))
		}
	}
	return fields
}

// Typed returns the value of a field of a form, a moment with the offset of the page's zone.
func (p page) Typed(name, value string) string {
	if t, err := moment(name, value); err == nil && value != "" && name == "since" {
		return p.in(t).Format(time.RFC3339Nano)
	}
	return p.Clean(value)
}

// moment parses a moment of a form: RFC 3339, with a space in place of the T, or without a
// zone, in UTC. An empty value is the zero time.
func moment(field, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	return momentIn(time.UTC, field, value)
}

// momentIn is moment, with another zone for a moment that has none.
func momentIn(zone *time.Location, field, value string) (time.Time, error) {
	iso := strings.Replace(strings.TrimSpace(value), " ", "T", 1)
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, iso, zone); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is %.40q, want a moment such as 2026-11-20T12:30:00Z or 2026-11-20 12:30", field, value)
}

// staleAfter is the age from which on a page says how old what it shows is. The sources are read
// again before that, if their server answers.
const staleAfter = 90 * time.Second

// TimeAndAge is Time, with the age if it is old.
func (p page) TimeAndAge(t time.Time) string {
	age := time.Since(t)
	if t.IsZero() || age < staleAfter {
		return p.Time(t)
	}
	return p.Time(t) + " (" + p.Age(t) + ")"
}

// Age returns how long ago a moment was.
func (p page) Age(t time.Time) string {
	return p.T("ago", config.FormatDuration(time.Since(t).Round(time.Second)))
}

// In returns how long after another moment a moment is; empty if it is not later.
func (p page) In(t, from time.Time) string {
	left := t.Sub(from).Round(time.Second)
	if left <= 0 {
		return ""
	}
	return p.T("in", config.FormatDuration(left))
}

// Unset reports whether an error says that no such server is configured.
func (page) Unset(err error) bool {
	return errors.Is(err, health.ErrNoDatabase) || errors.Is(err, health.ErrNoKafka)
}
