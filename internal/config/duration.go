package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
)

const day = 24 * time.Hour

const durationHint = "write a number and a unit, such as 10s, 5m, 2h or 30d"

// ParseDuration parses a duration in Go's notation, with d for days in front:
// 10s, 1h30m, 30d, 1d12h. The duration must be positive and a whole number of
// milliseconds, the unit of due times in records.
func ParseDuration(s string) (time.Duration, error) {
	d, wrong := parse(s)
	switch {
	case wrong != "":
	case d <= 0:
		wrong = "is not positive"
	case d%time.Millisecond != 0:
		wrong = "is not a whole number of milliseconds"
	}
	if wrong != "" {
		return 0, errors.New(quote(s) + " " + wrong)
	}
	return d, nil
}

func parse(s string) (d time.Duration, wrong string) {
	const noDuration = "is not a duration"
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, "has no unit"
	}
	days, rest, found := strings.Cut(s, "d")
	if !found {
		rest = s
	} else {
		n, err := strconv.ParseUint(days, 10, 31)
		if err != nil || n > uint64(math.MaxInt64/day) || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
			return 0, noDuration
		}
		if d = time.Duration(n) * day; rest == "" {
			return d, ""
		}
	}
	more, err := time.ParseDuration(rest)
	if err != nil || found && d+more < d {
		return 0, noDuration
	}
	return d + more, ""
}

// FormatDuration formats d in the notation of topics.yaml: 30d, 5m, 1h30m.
func FormatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return orderclose.ShortDuration(d)
}
