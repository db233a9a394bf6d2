package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/store"
)

var lockPromises = []promise[shop]{
	{name: "ALockBelongsToAConnection", test: lockOfAConnection, tags: Dialect},
	{name: "ASilentConnectionLosesItsLock", test: silentConnection, tags: Dialect},
}

// locks reports whether the database has locks that belong to a connection, and checks the error of one that has none.
func (s *shop) locks() bool {
	s.Helper()
	if s.Dialect() != store.SQLite {
		return true
	}
	if held, release, err := s.TakeLock(s.Context(), "sweep", time.Minute); held != nil || release != nil || !errors.Is(err, store.ErrNoLock) {
		s.Errorf("error %v, want that there are no locks", err)
	}
	return false
}

// take takes a lock that is free.
func (s *shop) take(name string, silence time.Duration) (held func(context.Context) error, release func(context.Context)) {
	s.Helper()
	held, release, err := s.TakeLock(s.Context(), name, silence)
	s.must(err)
	if held == nil {
		s.Fatalf("another connection has the lock %s", name)
	}
	return held, release
}

// taken reports whether another connection has the lock.
func (s *shop) taken(name string) bool {
	s.Helper()
	held, release, err := s.TakeLock(s.Context(), name, time.Minute)
	s.must(err)
	if held != nil {
		release(s.Context())
	}
	return held == nil
}

func lockOfAConnection(t *testing.T, s *shop) {
	if !s.locks() {
		return
	}
	held, release := s.take("sweep", time.Minute)
	_, releaseOther := s.take("sweep-recheck", time.Minute)
	s.must(held(t.Context()))
	want(t, "another connection has the lock", s.taken("sweep"), true)
	s.must(held(t.Context()))
	release(t.Context())
	want(t, "another connection has a lock that was given back", s.taken("sweep"), false)
	want(t, "another connection has the other lock", s.taken("sweep-recheck"), true)
	if err := held(t.Context()); err == nil {
		t.Error("a lock that was given back is held")
	}
	releaseOther(t.Context())
	want(t, "connections that are in use", s.DB().Stats().InUse, 0)
}

// The host of the connection is gone: the server hears nothing, not even the end of the connection.
func silentConnection(t *testing.T, s *shop) {
	if !s.locks() {
		return
	}
	held, release := s.take("sweep", time.Second)
	Await(t, "the server gives up the connection", func() (string, bool) { return "the lock is taken", !s.taken("sweep") })
	if err := held(t.Context()); err == nil {
		t.Error("the connection believes that it has the lock")
	}
	release(t.Context())
	want(t, "another connection has the lock", s.taken("sweep"), false)
}
