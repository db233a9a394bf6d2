package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/pausing"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

var turnPromises = []promise[shop]{
	{name: "AReadSaysWhatTheOrderIsAndHowFarItCame", test: readSays},
	{name: "ATurnBeginsWithTheClockAndThePauses", test: turnBegins, tags: Dialect | Settings},
	{name: "ATurnWithoutADatabaseFails", test: turnFails},
}

// turn reads windows of a few rows, each after the one before, until a read has come to the end, and returns the orders. It checks that
// they have their place in the window.
func (s *shop) turn(cutoff time.Time, newest bool, rows int) (ids []string) {
	s.Helper()
	w := overdue.Window{To: cutoff, Newest: newest, Rows: rows}
	for {
		found := must.Get(s.ReadOverdue(s.Context(), w))(s)
		for _, o := range found.Orders {
			ids = append(ids, o.ID)
			if o.Due.After(cutoff) || !found.All && newest && o.Due.Before(found.Reached.Due) || !found.All && !newest && o.Due.After(found.Reached.Due) {
				s.Errorf("%+v, read up to %+v", o, found.Reached)
			}
		}
		if found.All {
			return ids
		}
		if w.After = found.Reached; newest {
			w.After, w.Before = orderclose.Order{}, found.Reached
		}
	}
}

// wantTurns checks that reads in both directions find the orders of an order, of rows of different numbers.
func (s *shop) wantTurns(cutoff time.Time, ids []string, rows ...int) {
	s.Helper()
	for _, n := range rows {
		want(s, fmt.Sprintf("orders in reads of %d rows", n), s.turn(cutoff, false, n), ids)
		got := s.turn(cutoff, true, n)
		slices.Reverse(got)
		want(s, fmt.Sprintf("orders in reads of %d rows, the newest first", n), got, ids)
	}
}

func readSays(t *testing.T, s *shop) {
	s.migrated()
	oldest, middle, newest := s.order("b", -3*time.Minute), s.order("c", -2*time.Minute), s.order("a", -time.Minute)
	cutoff := s.now()
	for what, c := range map[string]struct {
		w    overdue.Window
		want overdue.Found
	}{
		"all":              {overdue.Window{}, overdue.Found{Orders: []orderclose.Order{oldest, middle, newest}, All: true}},
		"the newest first": {overdue.Window{Newest: true}, overdue.Found{Orders: []orderclose.Order{newest, middle, oldest}, All: true}},
		"a part":           {overdue.Window{Rows: 2}, overdue.Found{Orders: []orderclose.Order{oldest, middle}, Reached: middle}},
		"the newest part":  {overdue.Window{Newest: true, Rows: 1}, overdue.Found{Orders: []orderclose.Order{newest}, Reached: newest}},
		"behind an order":  {overdue.Window{After: middle}, overdue.Found{Orders: []orderclose.Order{newest}, All: true}},
		"between two":      {overdue.Window{After: oldest, Before: newest, Newest: true}, overdue.Found{Orders: []orderclose.Order{middle}, All: true}},
		"from a time":      {overdue.Window{After: orderclose.Order{Due: newest.Due}}, overdue.Found{Orders: []orderclose.Order{newest}, All: true}},
		"to a time":        {overdue.Window{To: oldest.Due}, overdue.Found{Orders: []orderclose.Order{oldest}, All: true}},
		"nothing":          {overdue.Window{After: newest}, overdue.Found{All: true}},
	} {
		if c.w.To.IsZero() {
			c.w.To = cutoff
		}
		want(t, what, must.Get(s.ReadOverdue(t.Context(), c.w))(t), c.want)
	}
}

func turnBegins(t *testing.T, s *shop) {
	s.migrated()
	begin := s.now()
	b := must.Get(s.BeginTurn(t.Context(), s.now()))(t)
	s.within("the clock", b.Now, begin)
	want(t, "pauses of an empty database", len(b.Pauses), 0)
	want(t, "an empty database is quiet", b.Quiet, true)
	s.order("later", time.Hour)
	for at, quiet := range map[time.Duration]bool{time.Minute: true, 2 * time.Hour: false} {
		b = must.Get(s.BeginTurn(t.Context(), s.now().Add(at)))(t)
		want(t, fmt.Sprint("no order is due within ", at), b.Quiet, quiet)
	}

	s.pause("book", time.Hour, "it's the reason", false)
	s.pause("", time.Hour, "yesterday", false)
	s.pause("film", time.Hour, "too long ago", false)
	s.exec("UPDATE pauses SET until_at = ? WHERE path = 'all' AND category = ''", s.time(s.now().Add(-23*time.Hour)))
	s.exec("UPDATE pauses SET until_at = ? WHERE category = 'film'", s.time(s.now().Add(-25*time.Hour)))
	on := must.Get(s.Pauses(t.Context()))(t)
	b = must.Get(s.BeginTurn(t.Context(), s.now()))(t)
	slices.SortFunc(b.Pauses, func(x, y pausing.Pause) int { return y.Until.Compare(x.Until) })
	must.That(t, len(b.Pauses) == 2 && b.Pauses[1].Reason == "yesterday" && b.Pauses[1].Until.Before(b.Now.Add(-22*time.Hour)), "pauses %+v", b.Pauses)
	want(t, "the pause that is on", b.Pauses[:1], on)
}

func turnFails(t *testing.T, s *shop) {
	s.migrated()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, reading := s.ReadOverdue(ctx, overdue.Window{To: s.now()})
	_, beginning := s.BeginTurn(ctx, s.now())
	s.exec("DROP TABLE pauses")
	_, missing := s.BeginTurn(t.Context(), s.now())
	for what, err := range map[string]error{"reading": reading, "beginning": beginning, "without a table": missing} {
		expect.That(t, err != nil && !errors.Is(err, overdue.ErrSlow) && (s.Dialect() == store.SQLite || errors.Is(err, orderclose.ErrUnavailable)),
			"%s: %v", what, err)
	}
}
