package pipeline

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestSetDelays_HasThoseOfTheNewFile(t *testing.T) {
	a := &App{o: Options{TopicsFile: filepath.Join(t.TempDir(), "topics.yaml")}}
	var p wire.Process
	for _, c := range []struct {
		delay time.Duration
		file  string
		roles []Role
		says  bool
	}{
		{time.Hour, "", []Role{Relay, Closer}, false}, // no order is made by them
		{time.Hour, "", AllRoles(), true},
		{time.Hour, "", AllRoles(), false},
		{time.Minute, "one", AllRoles(), true},
		{time.Minute, "a comment", AllRoles(), false},
		{time.Second, "another", AllRoles(), true},
	} {
		if c.file != "" {
			must.Do(t, os.WriteFile(a.o.TopicsFile, []byte(c.file), 0o600))
		}
		cfg := &config.Config{}
		cfg.Delays.Default = c.delay
		a.live.Store(cfg)
		expect.Equal(t, a.setDelays(&p, c.roles), c.says, "changed by %+v", c)
		if !c.says {
			continue
		}
		want := wire.Process{Delays: map[string]int64{"": c.delay.Milliseconds()}}
		if c.file != "" {
			want.File = fmt.Sprintf("%x", sha256.Sum256([]byte(c.file)))[:10]
		}
		expect.Same(t, p, want, "the process after %+v", c)
	}
}

func TestSetFailing_SaysSinceWhen(t *testing.T) {
	a := &App{o: Options{Config: &config.Config{}}}
	a.live.Store(a.o.Config)
	var p wire.Process
	minuteAgo := time.Now().Add(-time.Minute)
	for _, step := range []struct {
		does func()
		says bool
		want []string
	}{
		{func() {}, false, nil},
		{func() { a.lockChecked(errors.New("OOM")) }, true, []string{wire.FailingLock}},
		{func() { a.lockChecked(errors.New("still OOM")) }, false, []string{wire.FailingLock}},
		{func() { a.ready.waiting.add(writesReason, "read-only") }, true, []string{wire.FailingLock, wire.FailingWrites}},
		{func() { a.lockChecked(nil) }, true, []string{wire.FailingWrites}},
		{func() { a.ready.waiting.remove(writesReason) }, true, nil},
		{func() { a.lowestLimitSince = func() time.Time { return time.Now().Add(-time.Second) } }, false, nil},
		{func() { a.lowestLimitSince = func() time.Time { return minuteAgo } }, true, []string{wire.FailingLimit}},
		{func() { a.lowestLimitSince = func() time.Time { return time.Time{} } }, true, nil},
	} {
		step.does()
		says := a.setFailing(&p)
		got := slices.Sorted(maps.Keys(p.Failing))
		expect.That(t, says == step.says && slices.Equal(got, step.want), "%v %v, want %+v", says, got, step)
	}
}
