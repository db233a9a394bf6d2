package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
)

const day = 24 * time.Hour

const durationHint = "write a number and a unit, such as 10s, 5m, 2h or 30d"

// The errors of a duration. ParseDuration puts the text of the duration before them.
var (
	errNoUnit      = errors.New("has no unit")
	errNoDuration  = errors.New("is not a duration")
	errNotPositive = errors.New("is not positive")
	errTooFine     = errors.New("is not a whole number of milliseconds")
)

// ParseDuration parses a duration in Go's notation, with d for days in front:
// 10s, 1h30m, 30d, 1d12h. The duration must be positive and a whole number of
// milliseconds, the unit of due times in records.
func ParseDuration(s string) (time.Duration, error) {
	d, err := parse(s)
	switch {
	case err != nil:
	case d <= 0:
		err = errNotPositive
	case d%time.Millisecond != 0:
		err = errTooFine
	}
	if err != nil {
		return 0, fmt.Errorf("%s %w", quote(s), err)
	}
	return d, nil
}

func parse(s string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, errNoUnit
	}
	days, rest, found := strings.Cut(s, "d")
	if !found {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, errNoDuration
		}
		return d, nil
	}
	n, err := strconv.ParseUint(days, 10, 31)
	if err != nil || n > uint64(math.MaxInt64/day) || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, errNoDuration
	}
	d := time.Duration(n) * day
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil || d+more < d {
		return 0, errNoDuration
	}
	return d + more, nil
}

// FormatDuration formats d in the notation of topics.yaml: 30d, 5m, 1h30m.
func FormatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return orderclose.ShortDuration(d)
}
