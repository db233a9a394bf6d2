package realtest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit"
)

// databaseLock returns a lock in the database that a DSN names.
func databaseLock(t *testing.T, dsn, key string) compensator.Lock {
	t.Helper()
	cfg := config.Default()
	cfg.Compensator.Lock = config.Lock{Kind: config.LockDatabase, Key: key, Expiry: 3 * time.Second, Extend: 500 * time.Millisecond}
	// A Redis is named, and nothing connects to it.
	c, err := clients.Connect(config.Servers{DSN: dsn, RedisURL: "redis://127.0.0.1:1/0"}, clients.Pool{}, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if c.Redis != nil {
		t.Error("it made a client of Redis")
	}
	lock, err := c.SweepLock(cfg.Compensator.Lock, "", config.Never)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// asked asks for a lock until an answer is none of those in again. A busy machine may need longer to connect than the
// server may take to grant a lock that expires soon.
func asked(ctx context.Context, lock compensator.Lock, work func(context.Context) error, again ...error) error {
	for {
		err := lock.Hold(ctx, work)
		if ctx.Err() != nil || !slices.ContainsFunc(again, func(target error) bool { return errors.Is(err, target) }) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// patient is a lock that is asked for until it is granted.
type patient struct{ compensator.Lock }

func (p patient) Hold(ctx context.Context, work func(context.Context) error) error {
	return asked(ctx, p.Lock, work, compensator.ErrHeld, compensator.ErrLockUnavailable)
}

// The connection of the lock fails in the middle of a sweep. The sweep stops, and another process gets the lock.
func TestReal_ASweepStopsWithTheConnectionOfItsLock(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(s *sweeping){
		"stall":                              func(s *sweeping) { s.proxy.Stall() },
		"half open, and nobody new is taken": func(s *sweeping) { s.proxy.Refuse(); s.proxy.HalfOpen() },
		"away":                               func(s *sweeping) { s.proxy.Refuse(); s.proxy.Cut() },
		"cut for a moment":                   func(s *sweeping) { s.proxy.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := mysql.ParseDSN(realServers(t).DSN)
			if err != nil {
				t.Fatal(err)
			}
			o.DBName = "information_schema"
			key := newPrefix()
			s := &sweeping{t: t, key: key, over: make(chan struct{}), store: &endless{enough: make(chan struct{}), more: make(chan struct{})}}
			if s.proxy, err = testkit.NewProxy(o.Addr); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.proxy.Close() })
			direct := databaseLock(t, o.FormatDSN(), key)
			o.Addr = s.proxy.Addr()
			s.sweep(patient{databaseLock(t, o.FormatDSN(), key)})
			s.page()
			nothing := func(context.Context) error { return nil }
			switch err := asked(t.Context(), direct, nothing, compensator.ErrLockUnavailable); {
			case errors.Is(err, compensator.ErrHeld):
				lose(s)
			case err == nil: // The machine was too busy to renew the lock in time. The sweep must end by itself.
			default:
				t.Fatalf("another process asks for the lock: %v", err)
			}
			if err := s.ended(); !errors.Is(err, compensator.ErrLockLost) || s.report.Lock != "held" || s.report.Closed == 0 {
				t.Errorf("it ended with %v and %+v; want the lock lost in the middle", err, s.report)
			}
			// The server ends the connection that it hears nothing of.
			if err := (patient{direct}).Hold(t.Context(), nothing); err != nil {
				t.Error(err)
			}
		})
	}
}
