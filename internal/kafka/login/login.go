// Package login has the login to Kafka by tokens (SASL OAUTHBEARER), which are renewed while the process runs. A login by user
// and password needs nothing of this package.
//
// Each connection calls Start of the mechanism when it opens, and again before the broker's session
// ends. A token is renewed after half of its life. If that fails, the last one is used until it ends.
//
//	login.go       the package, and the token that is used until it is renewed
//	mechanisms.go  the mechanism OAUTHBEARER
//	tokens.go      where tokens come from: a file, a command, a token endpoint
package login

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	// fetchTimeout bounds how long a new token is awaited. It is shorter than the
	// time to open a connection, so that the last one can still be used.
	fetchTimeout = 3 * time.Second
	// fetchPause is the time between a failed attempt and the next one.
	fetchPause = 2 * time.Second
)

// renewed is a token that all connections share. Who waits for it waits no longer than its context.
type renewed struct {
	fetch Token
	log   *slog.Logger

	turn  chan struct{} // has room for the one goroutine that uses the fields below
	token string        // the last one
	ends  time.Time
	err   error // of the last attempt, if there was no token to use
	again time.Time
}

func newRenewed(fetch Token, log *slog.Logger) *renewed {
	return &renewed{fetch: fetch, log: log, turn: make(chan struct{}, 1)}
}

// current returns a token that has not ended. If one must be fetched, that goes on beyond ctx, for those who wait.
func (r *renewed) current(ctx context.Context) (string, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("another login waits for it: %w", ctx.Err())
	}
	var token string
	var err error
	fetched := make(chan struct{})
	go func() {
		if !time.Now().Before(r.again) {
			r.renew()
		}
		token, err = r.token, r.err
		close(fetched)
		<-r.turn
	}()
	select {
	case <-fetched:
		return token, err
	case <-ctx.Done():
		return "", fmt.Errorf("it did not come in time: %w", ctx.Err())
	}
}

// renew fetches a token.
func (r *renewed) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	token, ends, err := r.fetch(ctx)
	now := time.Now()
	r.again = now.Add(fetchPause)
	switch {
	case err == nil:
		r.token, r.ends, r.again = token, ends, now.Add(ends.Sub(now)/2) //mutant:expired-token-used
	case now.Before(r.ends):
		r.log.Warn("renewing the login to Kafka failed, will retry; logins use the last token until it ends", "ends", r.ends.UTC(), "err", err)
		if r.again.After(r.ends) {
			r.again = r.ends
		}
		err = nil
	}
	r.err = err
}
