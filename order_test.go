package orderclose_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestValidateID_AcceptsIdsThatFitTheSchema(t *testing.T) {
	for _, id := range []string{
		"1", "ORD-2024-000017", strings.Repeat("x", 64), "订单-17", "a b", "名" + strings.Repeat("x", 61), `"\'`, "<&>", "a\u2028b",
	} {
		err := orderclose.ValidateID(id)
		expect.That(t, err == nil, "%q: %v", id, err)
	}
}

func TestValidateID_NamesTheReason(t *testing.T) {
	for _, row := range []struct {
		id     string
		reason error
		want   string
	}{
		{"", orderclose.ErrEmptyID, `order "" refused: order id is empty: give every order an id of its own`},
		{strings.Repeat("x", 65), orderclose.ErrLongID,
			`order "` + strings.Repeat("x", 64) + `" refused: order id is too long: it has 65 bytes and at most 64 are allowed`},
		{strings.Repeat("名", 22), orderclose.ErrLongID,
			`order "` + strings.Repeat("名", 21) + `" refused: order id is too long: it has 66 bytes and at most 64 are allowed`},
		{"a\nb", orderclose.ErrInvalidID,
			`order "a\nb" refused: order id has characters that are not allowed: use UTF-8 without control characters or space at either end`},
		{"a\x00", orderclose.ErrInvalidID, ""},
		{"a\u0085", orderclose.ErrInvalidID, ""},
		{"a\xff", orderclose.ErrInvalidID, ""},
		{" a", orderclose.ErrInvalidID, ""},
		{"a\u00a0", orderclose.ErrInvalidID, ""},
		{" ", orderclose.ErrInvalidID, ""},
		{strings.Repeat("\x80", 100), orderclose.ErrLongID, `order "" refused: order id is too long: it has 100 bytes and at most 64 are allowed`},
	} {
		err := orderclose.ValidateID(row.id)
		if !errors.Is(err, row.reason) {
			t.Errorf("%q: got %v, want %v", row.id, err, row.reason)
		} else if row.want != "" && err.Error() != row.want {
			t.Errorf("%q:\n got %v\nwant %s", row.id, err, row.want)
		}
		var oe *orderclose.OrderError
		if !errors.As(err, &oe) || len(oe.OrderID) > orderclose.MaxIDBytes || oe.Hint == "" {
			t.Errorf("%q: %#v", row.id, err)
		} else if utf8.ValidString(row.id) && !utf8.ValidString(oe.OrderID) {
			t.Errorf("%q: the error splits a letter: %q", row.id, oe.OrderID)
		}
	}
}

func TestValidate_ChecksTheDueTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const most = orderclose.DefaultMaxDelay
	for _, row := range []struct {
		name string
		due  time.Time
		want error
	}{
		{"none", time.Time{}, orderclose.ErrNoDue},
		{"no due time, in another zone", time.Time{}.In(time.FixedZone("", 3600)), orderclose.ErrNoDue},
		{"computed from no time of creation", time.Time{}.Add(30 * time.Minute), orderclose.ErrNoDue},
		{"long past", now.Add(-1000 * time.Hour), nil},
		{"now", now, nil},
		{"at the maximum", now.Add(most), nil},
		{"past the maximum by the clock slack", now.Add(most + orderclose.MaxDelaySlack), nil},
		{"past the maximum", now.Add(most + orderclose.MaxDelaySlack + 1), orderclose.ErrDueTooFar},
		{"further than a Duration can express", now.AddDate(5000, 0, 0), orderclose.ErrDueTooFar},
	} {
		err := orderclose.Order{ID: "1", Due: row.due}.Validate(now, most)
		expect.That(t, errors.Is(err, row.want), "%s: got %v, want %v", row.name, err, row.want)
	}
}

func TestValidate_ErrorNamesTheDueTimeAndTheMaximum(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for due, far := range map[time.Time]string{
		now.Add(2*time.Hour + 1): "in 2h0m0s",
		now.AddDate(1, 0, 1):     "on 2027-01-03",
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", 3600)): "on 9999-12-31",
	} {
		err := orderclose.Order{ID: "17", Due: due}.Validate(now, time.Hour)
		want := `order "17" refused: order is due too far ahead: it is due ` + far + ` and at most 1h0m0s is allowed (delays.max in topics.yaml)`
		expect.That(t, err != nil && err.Error() == want, "got  %v\nwant %s", err, want)
	}
}

func TestValidate_ChecksTheIDFirst(t *testing.T) {
	err := (orderclose.Order{}).Validate(time.Now(), time.Hour)
	expect.That(t, errors.Is(err, orderclose.ErrEmptyID), "got %v", err)
}
