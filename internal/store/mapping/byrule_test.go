package mapping

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// Mexico has not set its clocks since October 2022, and Kazakhstan has one offset since March 2024.
func TestChangesClocks_AZoneWhoseDaylightSavingTimeHasEndedHasOneOffset(t *testing.T) {
	for _, row := range []struct {
		zone, at string
		want     bool
	}{
		{"America/Mexico_City", "2026-11-30", false}, {"America/Mexico_City", "2023-06-01", true}, {"Asia/Almaty", "2026-11-30", false},
		{"Asia/Tehran", "2026-11-30", false}, {"America/Sao_Paulo", "2026-11-30", false}, {"Asia/Kolkata", "2026-11-30", false},
		{"Europe/Berlin", "2026-11-30", true}, {"Africa/Casablanca", "2026-11-30", true}, {"-06:00", "2026-11-30", false},
	} {
		loc, err := ParseZone(row.zone)
		at, atErr := time.Parse(time.DateOnly, row.at)
		expect.That(t, err == nil && atErr == nil && changesClocks(loc, at) == row.want, "%s at %s: want %v, %v %v", row.zone, row.at, row.want, err, atErr)
	}
}
