package realtest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// A broker that ends sessions after 5 s does not end the generation of a group.
func TestSecure_ASessionThatEndsCausesNoRebalance(t *testing.T) {
	placementOf(t)
	t.Parallel()
	b := newBrokerWith(t, []string{"connections.max.reauth.ms=5000"}, "member")
	b.grant([]kafkago.ACLEntry{row{"", "Topic", "t", "Read"}.acl(t, "member", ""), row{"", "Group", "g", "Read"}.acl(t, "member", "")})
	_, security := b.mutual("admin")
	admin := b.connect(t, access{brokers: []string{b.mtls}, security: security})
	must.Do(t, apply(t.Context(), admin, []kafka.TopicSpec{{Name: "t", Partitions: 1, Replication: 1}}))
	member := b.connect(t, b.by(kafka.Plain, "member"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var generations atomic.Int32
	var over atomic.Bool
	go func() { over.Store(scenario.Pause(ctx, 20*time.Second)) }() // four ends of a session
	must.Do(t, member.Consume(ctx, "g", "t", func(serving context.Context, claim wire.Claim) {
		generations.Add(1)
		for scenario.Pause(serving, 500*time.Millisecond) {
			claim.Done(0, "")
			if over.Load() {
				cancel()
			}
		}
	}))
	expect.Equal(t, generations.Load(), 1, "generations in 20 s")
}
