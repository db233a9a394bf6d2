package realtest

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

// databaseLock returns a lease in the database that a DSN names, whose schema is there.
func databaseLock(t *testing.T, dsn, key string) lock.Lock {
	t.Helper()
	cfg := config.Default()
	cfg.Compensator.Lock.Kind = config.LockDatabase
	// A Redis is named, and nothing connects to it.
	c := must.Get(clients.Connect(environ.Servers{DSN: dsn, RedisURL: "redis://127.0.0.1:1/0"}, clients.Database{}, cfg, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(c.Close)
	expect.That(t, c.Redis == nil, "it made a client of Redis")
	return must.Get(lock.NewLease(lock.Options{Database: c.Store, Holder: rand.Text(), Key: key, Expiry: 3 * time.Second}))(t)
}

// asked asks for a lock until an answer is none of those in again. A busy machine may need longer to connect than the
// server may take to grant a lock that expires soon.
func asked(ctx context.Context, l lock.Lock, work func(context.Context) error, again ...error) (err error) {
	_ = process.Await(ctx, func(ctx context.Context) error {
		err = l.Hold(ctx, work)
		isAgain := slices.ContainsFunc(again, func(target error) bool { return errors.Is(err, target) })
		if isAgain && !errors.Is(err, lock.ErrLost) { // a lost lock was granted, and its work has ended
			return err
		}
		return nil
	})
	return err
}

// patient is a lock that is asked for until it is granted.
type patient struct{ lock.Lock }

func (p patient) Hold(ctx context.Context, work func(context.Context) error) error {
	return asked(ctx, p.Lock, work, lock.ErrHeld, lock.ErrUnavailable)
}

// losesDatabaseLock plays a failure of the connection of a lock in the database. Another process gets the lock.
func losesDatabaseLock(t *testing.T, lose func(s *holding)) {
	o := must.Get(mysql.ParseDSN(newRig(t, realServers(t)).servers.DSN))(t)
	s := newHolding(t, o.Addr)
	direct := databaseLock(t, o.FormatDSN(), s.key)
	o.Addr = s.proxy.Addr()
	s.hold(databaseLock(t, o.FormatDSN(), s.key))
	nothing := func(context.Context) error { return nil }
	switch err := asked(t.Context(), direct, nothing, lock.ErrUnavailable); {
	case errors.Is(err, lock.ErrHeld):
		lose(s)
	case err == nil: // The machine was too busy to renew the lock in time. The work must end by itself.
	default:
		t.Fatalf("another process asks for the lock: %v", err)
	}
	s.losesItsLock()
	// The lease of the other process expires.
	expect.NoError(t, (patient{direct}).Hold(t.Context(), nothing))
}
