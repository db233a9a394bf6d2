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
	"log/slog"
	"time"

	"golang.org/x/oauth2"
)

const (
	// fetchTimeout bounds how long a new token is awaited. It is shorter than the
	// time to open a connection, so that the last one can still be used.
	fetchTimeout = 3 * time.Second
	// fetchPause is the time between a failed attempt and the next one.
	fetchPause = 2 * time.Second
)

// renewed returns a source of tokens that all connections share. While one fetches a token, the others wait.
func renewed(fetch Token, log *slog.Logger) oauth2.TokenSource {
	return oauth2.ReuseTokenSourceWithExpiry(nil, &renewal{fetch: fetch, log: log}, time.Nanosecond) // 0 would mean 10 s
}

// renewal fetches tokens for oauth2.ReuseTokenSourceWithExpiry, which asks it for one at a time. The Expiry of a token that it
// returns is when to ask again.
type renewal struct {
	fetch Token
	log   *slog.Logger

	token string // the last one
	ends  time.Time
	err   error // of the last attempt, if there was no token to use
	again time.Time
}

// Token implements oauth2.TokenSource.
func (r *renewal) Token() (*oauth2.Token, error) {
	if r.err != nil && time.Now().Before(r.again) {
		return nil, r.err
	}
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
	if r.err = err; err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: r.token, Expiry: r.again}, nil
}
