package simulation

import (
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// chaosOnly are the kinds of events in CHAOS_KINDS; none means all kinds.
var chaosOnly = strings.FieldsFunc(os.Getenv("CHAOS_KINDS"), func(r rune) bool { return r == ',' })

// chaosLogger logs to the file that CHAOS_LOG names, with simulated time.
func chaosLogger() *slog.Logger {
	name := os.Getenv("CHAOS_LOG")
	if name == "" {
		return slog.New(slog.DiscardHandler)
	}
	var to io.Writer = os.Stderr
	if f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		to = f
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// playSeed plays one world under synctest.
func playSeed(t *testing.T, p *plan) (r *result) {
	synctest.Test(t, func(t *testing.T) { r = playPlan(t, p) })
	return r
}

// worlds are those that each ring plays: with events of all kinds, and of some kinds only. A world of all kinds has few events of each.
var worlds = []struct {
	kinds []string
	seeds
}{
	{nil, seeds{3, 20, 20}},
	{[]string{"database"}, seeds{1, 20, 200}},
	{[]string{"answers", "refuses"}, seeds{1, 7, 30}},
	{[]string{"stop", "kill", "join"}, seeds{1, 7, 50}},
	{[]string{"reload", "stop"}, seeds{0, 2, 5}},
}

// TestChaos_SomeWorldsKeepThePromises plays the first worlds of make chaos. With CHAOS_SEED it plays only that world, without the events whose indices
// CHAOS_DROP names, and logs what happens in it.
func TestChaos_SomeWorldsKeepThePromises(t *testing.T) {
	if seed, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64); err == nil {
		var drop []int
		for _, index := range strings.Fields(os.Getenv("CHAOS_DROP")) {
			n := must.Get(strconv.Atoi(index))(t)
			drop = append(drop, n)
		}
		p := makePlan(seed, chaosOnly...).without(drop)
		t.Log(p.describe())
		for _, e := range p.Events {
			t.Log(e)
		}
		report(t, playSeed(t, p), chaosOnly)
		return
	}
	reminders := 0
	for _, some := range worlds {
		for seed := range uint64(some.inRing()) {
			r := playSeed(t, makePlan(seed, some.kinds...))
			report(t, r, some.kinds)
			reminders += r.Reminders
		}
	}
	expect.That(t, reminders != 0 || testing.Short(), "no world had to write a reminder")
}

func report(t *testing.T, r *result, only []string) {
	for _, v := range r.Violations {
		t.Errorf("CHAOS_SEED=%d CHAOS_KINDS=%s: %s", r.Seed, strings.Join(only, ","), v)
	}
}

// TestSetNow_MovesOnlyTheWallClock forward and back.
func TestSetNow_MovesOnlyTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 5 * time.Second, -5 * time.Second} {
			before := setNow(0)
			if !before.Equal(time.Now()) {
				t.Errorf("setNow(0) is %v, want %v", before, time.Now())
			}
			time.Sleep(time.Second)
			if set := setNow(ahead); set.Sub(before) != time.Second || set.Round(0).Sub(before.Round(0)) != ahead+time.Second {
				t.Errorf("set ahead by %v: %v later by the monotonic clock, %v by the wall clock", ahead, set.Sub(before), set.Round(0).Sub(before.Round(0)))
			}
		}
	})
}
