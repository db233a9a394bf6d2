package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// secured returns the options of a broker that requires SASL, and of its clients.
func secured(sasl bool) ([]kfake.Opt, Security) {
	if !sasl {
		return []kfake.Opt{kfake.SeedTopics(1, "t")}, Security{}
	}
	return []kfake.Opt{kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", "secret")},
		Security{SASL: &SASL{Mechanism: Plain, User: "relay", Password: "secret"}}
}

// TestConsume_LogsSilentBrokerAndTriesAnother: a broker that accepts connections and never answers used to block a membership for ever, without a log line.
func TestConsume_LogsSilentBrokerAndTriesAnother(t *testing.T) {
	for _, sasl := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts, security := secured(sasl)
			b := newBroker(t, opts...)
			c := b.cluster(Options{Brokers: []string{silent, b.ListenAddrs()[0]}, Security: security})
			c.transport.brokers.next.Store(0) // the silent broker first
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			must.Do(t, c.Consume(ctx, "g", "t", func(context.Context, wire.Claim) { cancel() }))
			expect.AtMost(t, time.Since(began), 2*requestTimeout, "SASL %v: the time of the membership", sasl)
			if log := b.log.String(); !strings.Contains(log, "does not answer") || !strings.Contains(log, `broker=`+silent+` step="first request"`) {
				t.Errorf("SASL %v: the log does not name the broker and the step:\n%s", sasl, log)
			}
		})
	}
}

// TestConsume_RetriesSilentClusterAndStopsInTime: no broker answers, and SASL is enabled.
func TestConsume_RetriesSilentClusterAndStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, security := secured(true)
		b := newBroker(t)
		c := b.cluster(Options{Brokers: []string{silent}, Security: security})
		ctx, cancel := context.WithCancel(t.Context())
		var canceled time.Time
		time.AfterFunc(40*time.Second, func() { canceled = time.Now(); cancel() })
		must.Do(t, c.Consume(ctx, "g", "t", func(context.Context, wire.Claim) {}))
		expect.AtMost(t, time.Since(canceled), memberStopTimeout, "the time from the end of ctx to the return of Consume")
		expect.That(t, b.dialled.Load() >= 6, "%d connections were tried in 40 s", b.dialled.Load())
	})
}

// TestConsume_SurvivesHalfOpenConnections: the connections accept writes and never bring an
// answer, as after a crash of a router. The member opens others within its session.
func TestConsume_SurvivesHalfOpenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, security := secured(true)
		b := newBroker(t, opts...)
		c, other := b.cluster(Options{Security: security}), b.cluster(Options{Security: security})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		generations := 0
		if err := c.Consume(ctx, "g", "t", func(claimed context.Context, claim wire.Claim) {
			defer cancel()
			generations++
			time.Sleep(time.Second)
			cut := time.Now()
			for range 5 { // also the connection that heartbeats use if the refresh of metadata has taken the first one
				b.halfOpen()
				time.Sleep(heartbeatEvery + 50*time.Millisecond)
			}
			time.Sleep(requestTimeout + heartbeatEvery) // a heartbeat fails
			claim.Done(7, "")
			for offset := int64(-1); offset != 7 && claimed.Err() == nil; time.Sleep(100 * time.Millisecond) {
				offset, _ = position(ctx, other, "g")
			}
			if took := time.Since(cut); claimed.Err() != nil || took > DefaultSessionTimeout {
				t.Errorf("committed after %v; the claim: %v", took, claimed.Err())
			}
			time.Sleep(2 * DefaultSessionTimeout)
			expect.That(t, claimed.Err() == nil, "the claim ended")
		}); err != nil || generations != 1 {
			t.Fatal(generations, err)
		}
	})
}

// TestConsume_EndsClaimsWhenTheSessionIsOver: the coordinator gives the partitions to others, even if this member cannot hear it.
func TestConsume_EndsClaimsWhenTheSessionIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"))
		c := b.cluster(Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		must.Do(t, c.Consume(ctx, "g", "t", func(claimed context.Context, _ wire.Claim) {
			defer cancel()
			time.Sleep(time.Second)
			b.hung.Store(b.ListenAddrs()[0])
			cut := time.Now()
			<-claimed.Done()
			took := time.Since(cut)
			expect.That(t, ctx.Err() == nil && took >= DefaultSessionTimeout-2*heartbeatEvery && took <= DefaultSessionTimeout+requestTimeout,
				"the claim ended after %v", took)
		}))
	})
}

// TestCluster_AuthenticatesAgainBeforeTheSessionEnds: in the last quarter of the session, or after its end, and never between a request and its answer.
func TestCluster_AuthenticatesAgainBeforeTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		logins := 0
		for _, key := range []kmsg.Key{kmsg.SASLHandshake, kmsg.SASLAuthenticate} {
			b.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.KeepControl()
				res := req.ResponseKind()
				if accepted, ok := res.(*kmsg.SASLAuthenticateResponse); ok {
					logins++
					accepted.SessionLifetimeMillis = 10_000
				}
				return res, nil, true
			})
		}
		_, security := secured(true)
		c := b.cluster(Options{Security: security})
		for range 25 { // a second each
			time.Sleep(time.Second)
			must.Do(t, c.Ping(t.Context()))
		}
		expect.Equal(t, logins, 1+3, "authentications in 25 s")
		time.Sleep(time.Minute)
		err := c.Ping(t.Context())
		expect.That(t, err == nil && logins == 1+4, "after the session's end: authenticated %d times, %v; want 5 times", logins, err)
		expect.Equal(t, b.dials.Load(), 1, "opened connections")
	})
}

// TestCluster_RenewsItsToken: each login sends a token with time left, on the connection that is open,
// also while the provider of tokens rests for less than half of a token's life.
func TestCluster_RenewsItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 20 * time.Second
		b := newBroker(t, kfake.SeedTopics(1, "t"), kfake.NumBrokers(1))
		began, logins := time.Now(), 0
		var issued atomic.Int64 // the provider is also called in the background
		var rests atomic.Bool
		for _, key := range []kmsg.Key{kmsg.SASLHandshake, kmsg.SASLAuthenticate} {
			b.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.KeepControl()
				res := req.ResponseKind()
				if sent, ok := req.(*kmsg.SASLAuthenticateRequest); ok {
					logins++
					var ends int
					if _, err := fmt.Sscanf(string(sent.SASLAuthBytes), "n,,\x01auth=Bearer token.%d\x01\x01", &ends); err != nil {
						t.Errorf("the login sends %q", sent.SASLAuthBytes)
					}
					left := time.Duration(ends)*time.Second - time.Since(began)
					expect.That(t, left > 0, "login %d sends a token that has ended", logins)
					res.(*kmsg.SASLAuthenticateResponse).SessionLifetimeMillis = left.Milliseconds()
				}
				return res, nil, true
			})
		}
		security := Security{SASL: &SASL{Mechanism: OAuthBearer, Token: func(context.Context) (string, time.Time, error) {
			if rests.Load() {
				return "", time.Time{}, errors.New("the provider rests")
			}
			issued.Add(1)
			ends := time.Now().Add(life)
			return fmt.Sprintf("token.%d", int(ends.Sub(began).Seconds())), ends, nil
		}}}
		c := b.cluster(Options{Security: security})
		for second := range 100 {
			rests.Store(second > 50 && second < 50+int(life.Seconds())/2)
			if err := c.Ping(t.Context()); err != nil {
				t.Fatalf("after %d s: %v", second, err)
			}
			time.Sleep(time.Second)
		}
		expect.Equal(t, b.dials.Load(), 1, "opened connections")
		n := issued.Load()
		expect.That(t, n >= 5 && n <= 10 && int64(logins) >= n, "%d tokens and %d logins in 100 s, with tokens of %v", n, logins, life)
	})
}
