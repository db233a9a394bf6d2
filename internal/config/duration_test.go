package config_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orderclose/orderclose/internal/config"
)

func TestParseDuration_AcceptsGoNotationAndDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10s":       10 * time.Second,
		"1h30m":     90 * time.Minute,
		"1.5s":      1500 * time.Millisecond,
		"1ms":       time.Millisecond,
		"30d":       720 * time.Hour,
		"1d12h":     36 * time.Hour,
		"0d1s":      time.Second,
		"106751d":   106751 * 24 * time.Hour,
		"2562047h":  2562047 * time.Hour,
		"1000000us": time.Second,
	} {
		if got, err := config.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseDuration_RefusesOtherText(t *testing.T) {
	for text, want := range map[string]string{
		"":            `"" is not a duration`,
		"30":          `"30" has no unit`,
		"1.5":         `"1.5" has no unit`,
		"5 m":         `"5 m" is not a duration`,
		"half a day":  `"half a day" is not a duration`,
		"1w":          `"1w" is not a duration`,
		"1.5d":        `"1.5d" is not a duration`,
		"d":           `"d" is not a duration`,
		"-1d":         `"-1d" is not a duration`,
		"1d-1h":       `"1d-1h" is not a duration`,
		"1d2d":        `"1d2d" is not a duration`,
		"2h1d":        `"2h1d" is not a duration`,
		"106752d":     `"106752d" is not a duration`,
		"106751d24h":  `"106751d24h" is not a duration`,
		"9999999999h": `"9999999999h" is not a duration`,
		"0s":          `"0s" is not positive`,
		"0d":          `"0d" is not positive`,
		"-5m":         `"-5m" is not positive`,
		"1500us":      `"1500us" is not a whole number of milliseconds`,
		"1d1ns":       `"1d1ns" is not a whole number of milliseconds`,
	} {
		if got, err := config.ParseDuration(text); err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v, %v\nwant %s", text, got, err, want)
		}
	}
}

func TestParseDuration_ReadsTheOutputOfFormatDuration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
		d := time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "n")) * unit
		text := config.FormatDuration(d)
		if got, err := config.ParseDuration(text); err != nil || got != d {
			t.Fatalf("%v is written %q and read as %v, %v", d, text, got, err)
		}
	})
}
