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

// chaosOnly are the kinds of events in CHAOS_KINDS; nil means all kinds.
var chaosOnly = func() map[string]bool {
	names := os.Getenv("CHAOS_KINDS")
	if names == "" {
		return nil
	}
	only := map[string]bool{}
	for _, name := range strings.Split(names, ",") {
		only[name] = true
	}
	return only
}()

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

// TestChaos_SomeWorldsKeepThePromises plays the first worlds of make chaos. With CHAOS_SEED it plays only that world, without the events whose indices
// CHAOS_DROP names, and logs what happens in it.
func TestChaos_SomeWorldsKeepThePromises(t *testing.T) {
	if seed, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64); err == nil {
		var drop []int
		for _, index := range strings.Fields(os.Getenv("CHAOS_DROP")) {
			n := must.Get(strconv.Atoi(index))(t)
			drop = append(drop, n)
		}
		p := makePlan(seed).without(drop)
		t.Log(p.describe())
		for _, e := range p.Events {
			t.Log(e)
		}
		report(t, playSeed(t, p))
		return
	}
	reminders := 0
	for seed := range uint64(chaosSeeds.inRing()) {
		r := playSeed(t, makePlan(seed))
		report(t, r)
		reminders += r.Reminders
	}
	expect.That(t, reminders != 0 || chaosSeeds.inRing() <= 10, "no world had to write a reminder")
}

func report(t *testing.T, r *result) {
	for _, v := range r.Violations {
		t.Errorf("seed %d: %s", r.Seed, v)
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
