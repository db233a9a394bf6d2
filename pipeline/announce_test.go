package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/control"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestSetFailing_SaysSinceWhen(t *testing.T) {
	a := &App{o: Options{Config: &config.Config{}}}
	a.live.Store(a.o.Config)
	var p control.Announcement
	minuteAgo := time.Now().Add(-time.Minute)
	for _, step := range []struct {
		does func()
		says bool
		want []string
	}{
		{func() {}, false, nil},
		{func() { a.lockChecked(errors.New("OOM")) }, true, []string{control.FailingLock}},
		{func() { a.lockChecked(errors.New("still OOM")) }, false, []string{control.FailingLock}},
		{func() { a.ready.waiting.add(writesReason, "read-only") }, true, []string{control.FailingLock, control.FailingWrites}},
		{func() { a.lockChecked(nil) }, true, []string{control.FailingWrites}},
		{func() { a.ready.waiting.remove(writesReason) }, true, nil},
		{func() { a.lowestLimitSince = func() time.Time { return time.Now().Add(-time.Second) } }, false, nil},
		{func() { a.lowestLimitSince = func() time.Time { return minuteAgo } }, true, []string{control.FailingLimit}},
		{func() { a.lowestLimitSince = func() time.Time { return time.Time{} } }, true, nil},
		{func() { a.provider = failingSince(time.Now().Add(-time.Second)) }, false, nil},
		{func() { a.provider = failingSince(minuteAgo) }, true, []string{control.FailingPayment}},
	} {
		step.does()
		says := a.setFailing(&p)
		got := slices.Sorted(maps.Keys(p.FailingSince))
		expect.That(t, says == step.says && slices.Equal(got, step.want), "%v %v, want %+v", says, got, step)
	}
}

type failingSince time.Time

func (s failingSince) Failing() (since time.Time, cause string) {
	return time.Time(s), "the answer unknown"
}

func TestProcessName_NamesRolesHostProcessAndPort(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	process := fmt.Sprintf("@%s:%d", host, os.Getpid())
	got, want := (&Options{Listen: "127.0.0.1:9464"}).ProcessName([]Role{Relay}), "relay"+process+":9464"
	expect.That(t, got == want, "%s, want %s", got, want)
	if got, want := (&Options{}).ProcessName([]Role{Closer, Relay}), "closer+relay"+process; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := (&Options{Instance: "relay-0", Listen: "127.0.0.1:9464"}).ProcessName([]Role{Relay}), "relay@relay-0:9464"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
