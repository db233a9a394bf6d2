package console

import (
	"errors"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/ops"
)

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
	return errors.Is(err, ops.ErrNoDatabase) || errors.Is(err, ops.ErrNoKafka)
}
