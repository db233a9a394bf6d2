package testkit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// NetworkFault is a fault of the connections through a proxy. Heal ends it.
type NetworkFault struct {
	Name, Does string // %s is the server
	// Begin begins it. A connection is reset after so many bytes, or transfers a hundred times as many in a second.
	Begin func(p *Proxy, bytes int)
}

// NetworkFaults are the faults of the network to any server.
var NetworkFaults = []NetworkFault{
	{"cut", "all connections to %s are reset, and new ones refused", func(p *Proxy, _ int) { p.Disconnect() }},
	{"half-open", "the server's side of all connections to %s is reset, and the clients do not notice", func(p *Proxy, _ int) { p.HalfOpen() }},
	{"swallowed", "the answers of %s get lost", func(p *Proxy, _ int) { p.Set(ToClient, ProxyRules{Drop: true}) }},
	{"resets", "connections to %s are reset again and again", func(p *Proxy, bytes int) { p.Set(ToServer, ProxyRules{CutAfter: bytes}) }},
	{"stall", "all connections to %s stall", func(p *Proxy, _ int) { p.Stall() }},
	{"slow", "50 ms in each direction to %s, and little bandwidth", func(p *Proxy, bytes int) {
		for _, d := range []Direction{ToServer, ToClient} {
			p.Set(d, ProxyRules{Delay: 50 * time.Millisecond, Rate: 100 * bytes})
		}
	}},
}

// DeleteRecords deletes every record of a topic, as retention does.
func DeleteRecords(ctx context.Context, c *kadm.Client, topic string) error {
	found, err := c.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	var ends kadm.Offsets
	found.EachPartition(func(p kadm.PartitionDetail) { ends.AddOffset(topic, p.Partition, -1, -1) }) // -1: all
	deleted, err := c.DeleteRecords(ctx, ends)
	return errors.Join(err, deleted.Error())
}

// OffsetLister lists an offset of each partition of topics.
type OffsetLister func(c *kadm.Client, ctx context.Context, topics ...string) (kadm.ListedOffsets, error)

// SetCommits sets the commits of a group without members, in each partition of a topic.
func SetCommits(ctx context.Context, c *kadm.Client, group, topic string, list OffsetLister) error {
	listed, err := list(c, ctx, topic)
	if err = errors.Join(err, listed.Error()); err != nil {
		return err
	}
	return c.CommitAllOffsets(ctx, group, listed.Offsets())
}

// InSync returns an error if a replica of the topics is not in sync.
func InSync(ctx context.Context, c *kadm.Client, topics ...string) error {
	found, err := c.ListTopics(ctx, topics...)
	if err = errors.Join(err, found.Error()); err != nil {
		return err
	}
	found.EachPartition(func(p kadm.PartitionDetail) {
		if len(p.ISR) < len(p.Replicas) {
			err = fmt.Errorf("%s/%d has the replicas %v, and %v are in sync", p.Topic, p.Partition, p.Replicas, p.ISR)
		}
	})
	return err
}
