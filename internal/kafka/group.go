package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"orderclose"
)

// Times of a group membership. A crash is noticed after the session timeout, and
// that is the lateness a crash costs; heartbeats are far more frequent because
// they are also how a member learns of a planned rebalance.
const (
	sessionTimeout   = 6 * time.Second // the least that brokers allow by default
	heartbeatEvery   = 250 * time.Millisecond
	commitEvery      = 200 * time.Millisecond
	rejoinBackoff    = 500 * time.Millisecond
	rebalanceTimeout = 10 * time.Second
	watchPartitions  = 5 * time.Second
)

// Consume reads a topic as a member of a group until ctx ends. For each
// partition that the group gives to this member, it calls serve in a goroutine
// of its own. serve must return when its context ends, which is when the
// partition may go to another member, and not before.
//
// What serve reports by Claim.Done is committed every 200 ms, and once more
// after all the serves of a generation have returned. If the group refuses a
// commit the partitions may be somebody else's: the contexts end at once.
//
// Consume retries whatever fails and returns nil when ctx has ended, all
// serves have returned and the group has been left.
func (c *Cluster) Consume(ctx context.Context, group, topic string, serve func(context.Context, orderclose.Claim)) error {
	cg, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                     group,
		Brokers:                c.opts.Brokers,
		Dialer:                 c.dialer(),
		Topics:                 []string{topic},
		HeartbeatInterval:      heartbeatEvery,
		SessionTimeout:         sessionTimeout,
		RebalanceTimeout:       rebalanceTimeout,
		JoinGroupBackoff:       rejoinBackoff,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: watchPartitions,
		StartOffset:            kafka.FirstOffset,
		Timeout:                requestTimeout,
	})
	if err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	// Close also waits for the functions of the generation, and so for the last
	// commit; Next does not.
	defer cg.Close()
	log := c.opts.Logger.With("group", group, "topic", topic)
	for ctx.Err() == nil {
		gen, err := cg.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				log.Warn("joining the group failed, trying again", "err", c.explainJoin(err, group, topic))
			}
			continue
		}
		log.Debug("joined the group", "generation", gen.ID, "partitions", len(gen.Assignments[topic]))
		// One function for everything: the library ends the generation when any of
		// its functions returns, and this one returns last.
		gen.Start(func(ended context.Context) {
			g := &generation{cluster: c, gen: gen, topic: topic, done: map[int]int64{}}
			g.run(ctx, ended, serve)
		})
	}
	return nil
}

// generation is this member's share of a group between two rebalances.
type generation struct {
	cluster *Cluster
	gen     *kafka.Generation
	topic   string

	mu   sync.Mutex
	done map[int]int64 // by partition: the offset to commit, if it is not yet
}

// run serves the claims until the generation or the caller's ctx has ended.
func (g *generation) run(ctx, ended context.Context, serve func(context.Context, orderclose.Claim)) {
	ctx, revoke := context.WithCancel(ctx)
	defer revoke()
	stop := context.AfterFunc(ended, revoke)
	defer stop()

	var serves sync.WaitGroup
	for _, a := range g.gen.Assignments[g.topic] {
		serves.Go(func() {
			if claim, ok := g.claim(ctx, a); ok {
				serve(ctx, claim)
			}
		})
	}
	g.commitUntil(ctx, revoke)
	serves.Wait()
	g.commit()
	// Returning early would end the generation, and another would begin at once:
	// wait for its end, which ctx or the coordinator brings.
	<-ended.Done()
}

// commitUntil commits at every interval until ctx ends, or ends it when the
// group says that the partitions are no longer ours.
func (g *generation) commitUntil(ctx context.Context, revoke func()) {
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := g.commit(); evicted(err) {
				revoke()
			}
		}
	}
}

// commit sends the offsets that are done. On failure they stay to be sent again.
func (g *generation) commit() error {
	g.mu.Lock()
	offsets := g.done
	g.done = map[int]int64{}
	g.mu.Unlock()
	if len(offsets) == 0 {
		return nil
	}
	err := g.gen.CommitOffsets(map[string]map[int]int64{g.topic: offsets})
	if err == nil {
		return nil
	}
	g.cluster.opts.Logger.Warn("commit failed", "group", g.gen.GroupID, "topic", g.topic, "err", err)
	g.mu.Lock()
	defer g.mu.Unlock()
	for partition, offset := range offsets {
		if _, newer := g.done[partition]; !newer {
			g.done[partition] = offset
		}
	}
	return err
}

func (g *generation) note(partition int, offset int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done[partition] = offset
}

// claim turns an assignment into a Claim, asking for the log's start if nothing
// was committed yet. It reports false if ctx ended meanwhile.
func (g *generation) claim(ctx context.Context, a kafka.PartitionAssignment) (orderclose.Claim, bool) {
	claim := orderclose.Claim{
		Topic: g.topic, Partition: a.ID, Offset: a.Offset,
		Done: func(offset int64) { g.note(a.ID, offset) },
	}
	for claim.Offset < 0 {
		first, _, err := g.cluster.Bounds(ctx, g.topic, a.ID)
		if err == nil {
			claim.Offset = first
			break
		}
		if ctx.Err() != nil {
			return claim, false
		}
		g.cluster.opts.Logger.Warn("cannot find the start of the log, trying again", "err", err)
		if !sleep(ctx, rejoinBackoff) {
			return claim, false
		}
	}
	return claim, true
}

// sleep waits for d, or reports false as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
