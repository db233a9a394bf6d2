// Package login has the logins to Kafka that are renewed while the process runs: by tokens (SASL
// OAUTHBEARER), and by the credentials of AWS (SASL AWS_MSK_IAM). A login by user and password needs
// nothing of this package.
//
// Each connection calls Start of the mechanism when it opens, and again before the broker's session
// ends. A token or credential is renewed after half of its life. If that fails, the last one is used
// until it ends.
//
//	login.go       the package, and what is kept until it is renewed
//	mechanisms.go  the mechanisms OAUTHBEARER and AWS_MSK_IAM
//	tokens.go      where tokens come from: a file, a command, a token endpoint
//	aws.go         where the credentials of AWS come from
package login

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// fetchTimeout bounds how long a new token or credential is awaited. It is shorter than the
	// time to open a connection, so that the last one can still be used.
	fetchTimeout = 3 * time.Second
	// fetchPause is the time between a failed attempt and the next one.
	fetchPause = 2 * time.Second
)

// kept is a token or a credential that is used until it is renewed. It is safe for concurrent use.
type kept[T any] struct {
	// fetch returns a new value and the time of its end. If ends is zero, the value is not kept.
	fetch func(context.Context) (value T, ends time.Time, err error)
	what  string // for the log
	log   *slog.Logger

	turn chan struct{} // of capacity 1, for the caller that fetches

	mu      sync.Mutex // guards the fields below
	value   T
	err     error // why there is no value
	ends    time.Time
	renewAt time.Time
}

func keep[T any](what string, log *slog.Logger, fetch func(context.Context) (T, time.Time, error)) *kept[T] {
	return &kept[T]{fetch: fetch, what: what, log: log, turn: make(chan struct{}, 1)}
}

// get returns the value. When half of its life is over, it is renewed while callers still get the last one, until that
// ends. So a provider that hangs keeps nobody from logging in.
func (k *kept[T]) get(ctx context.Context) (T, error) {
	last := k.look()
	switch {
	case last.fresh:
		return last.value, last.err
	case last.valid:
		select {
		case k.turn <- struct{}{}:
			go func() {
				defer func() { <-k.turn }()
				_ = k.renew(context.WithoutCancel(ctx)) // renew has logged it
			}()
		default: // another caller has begun
		}
		return last.value, nil
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return last.value, ctx.Err()
	}
	if last = k.look(); !last.fresh { // no other caller has renewed it meanwhile
		if err := k.renew(ctx); ctx.Err() != nil { // only this caller has given up
			return last.value, err
		}
		last = k.look()
	}
	return last.value, last.err
}

// looked is what is kept at one moment.
type looked[T any] struct {
	value T
	err   error
	fresh bool // it need not be renewed yet; an error need not be asked for again yet
	valid bool // the value has not ended
}

func (k *kept[T]) look() looked[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	return looked[T]{k.value, k.err, now.Before(k.renewAt), now.Before(k.ends)}
}

// renew fetches a new value. The caller has the turn.
func (k *kept[T]) renew(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	next, ends, err := k.fetch(limited)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch now := time.Now(); {
	case err == nil:
		k.value, k.err, k.ends, k.renewAt = next, nil, ends, now.Add(ends.Sub(now)/2) //mutant:expired-token-used
	case ctx.Err() != nil:
	case now.Before(k.ends):
		k.log.Warn("renewing the login to Kafka failed, will retry; logins use the last token or credential until it ends",
			"login", k.what, "ends", k.ends.UTC(), "err", err)
		k.renewAt = now.Add(min(fetchPause, k.ends.Sub(now)))
	default:
		var none T
		k.value, k.err, k.renewAt = none, err, now.Add(fetchPause)
	}
	return err
}
