package kafka

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

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

// TestConsume_LogsSilentBrokerAndTriesAnother: a broker that accepts connections and never
// answers used to block a membership for ever, without a log line.
func TestConsume_LogsSilentBrokerAndTriesAnother(t *testing.T) {
	for _, sasl := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts, security := secured(sasl)
			b := newBroker(t, opts...)
			c := b.cluster(Options{Brokers: []string{silent, b.ListenAddrs()[0]}, Security: security})
			c.connect.next.Store(0) // the silent broker first
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			if err := c.Consume(ctx, "g", "t", func(context.Context, wire.Claim) { cancel() }); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 2*connectTimeout {
				t.Errorf("SASL %v: the membership took %v", sasl, took)
			}
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
		if err := c.Consume(ctx, "g", "t", func(context.Context, wire.Claim) {}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(canceled); took > memberStopTimeout {
			t.Errorf("Consume returned %v after its ctx had ended", took)
		}
		if n := b.dialled.Load(); n < 6 {
			t.Errorf("%d connections were tried in 40 s", n)
		}
	})
}

// TestConsume_NoticesHalfOpenCoordinator: the connection accepts writes and never brings an
// answer, as after a crash of a machine or a router.
func TestConsume_NoticesHalfOpenCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, security := secured(true)
		b := newBroker(t, opts...)
		c := b.cluster(Options{Security: security})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var cut, ended, next time.Time
		if err := c.Consume(ctx, "g", "t", func(ctx context.Context, _ wire.Claim) {
			if !cut.IsZero() {
				next = time.Now()
				cancel()
				return
			}
			time.Sleep(time.Second)
			cut = time.Now()
			b.halfOpen()
			<-ctx.Done()
			ended = time.Now()
		}); err != nil {
			t.Fatal(err)
		}
		// At most four requests in a row find a connection that is cut; a pause follows each.
		if ended.Sub(cut) > requestTimeout+heartbeatEvery || next.Sub(cut) > 4*(requestTimeout+time.Second) {
			t.Errorf("the claim ended after %v, the next one began after %v", ended.Sub(cut), next.Sub(cut))
		}
	})
}

// TestPing_SkipsSilentBroker sends requests outside of a group, with SASL, while the broker
// that is tried first does not answer.
func TestPing_SkipsSilentBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, security := secured(true)
		b := newBroker(t, opts...)
		c := b.cluster(Options{Brokers: []string{silent, b.ListenAddrs()[0]}, Security: security})
		c.connect.next.Store(0)
		for began := time.Now(); c.Ping(t.Context()) != nil; time.Sleep(time.Second) {
			if time.Since(began) > 4*requestTimeout {
				t.Fatalf("no answer after %v: %v", time.Since(began), c.Ping(t.Context()))
			}
		}
	})
}
