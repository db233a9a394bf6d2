package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// Times of a group membership. The session timeout is the lateness that a crash costs. The
// heartbeats are far more frequent, because a member also learns of a planned rebalance by
// a heartbeat.
const (
	sessionTimeout     = 6 * time.Second // the least that brokers allow by default
	heartbeatEvery     = 250 * time.Millisecond
	commitEvery        = 200 * time.Millisecond
	rejoinBackoff      = 250 * time.Millisecond
	rebalanceTimeout   = 10 * time.Second
	watchPartitions    = 5 * time.Second // how often the leader compares the number of partitions
	stopReadTimeout    = 4 * time.Second // for a read in flight when a member stops
	finalCommitTimeout = 2 * time.Second // for the last commit of a generation, with all retries
	// memberStopTimeout bounds the end of a membership: reads in flight, the last commit, and
	// leaving the group. A process has 10 s to stop.
	memberStopTimeout = 8 * time.Second
)

// Consume reads a topic as a member of a group until ctx ends. For each partition that the
// group assigns to this member, it calls serve in a new goroutine. The context of serve ends
// when the partition may go to another member. serve must return then, and not before.
//
// The offsets that serve reports by Claim.Done are committed every 200 ms, and once more
// after all serves of a generation have returned; this last commit is retried for 2 s. If
// the group rejects a commit because another member may own the partitions, the contexts of
// all serves end at once.
//
// Consume retries after every failure. It returns nil when ctx has ended, all serves have
// returned, and the member has left the group. It returns an error only at once, for an
// invalid group or topic.
func (c *Cluster) Consume(ctx context.Context, group, topic string, serve func(context.Context, wire.Claim)) error {
	balancer := &countingBalancer{}
	connCtx, closeAll := retry.Linger(ctx, memberStopTimeout)
	defer closeAll()
	cg, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                group,
		Brokers:           []string{anyBroker},
		Dialer:            c.dialer(ctx, connCtx),
		Topics:            []string{topic},
		HeartbeatInterval: heartbeatEvery,
		SessionTimeout:    sessionTimeout,
		RebalanceTimeout:  rebalanceTimeout,
		JoinGroupBackoff:  rejoinBackoff,
		GroupBalancers:    []kafka.GroupBalancer{balancer},
		StartOffset:       kafka.FirstOffset,
		Timeout:           requestTimeout,
	})
	if err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	var running sync.WaitGroup // the library does not wait for a function that it starts too late
	defer running.Wait()
	// Close also waits for the functions of the generation, and so for the last commit. Next
	// does not wait for them.
	defer cg.Close()
	log := c.opts.Logger.With("group", group, "topic", topic)
	member := "" // the member id that the library has in the group; see leave
	rejected := retry.NewBackOff()
	for ctx.Err() == nil {
		gen, err := cg.Next(ctx)
		if err != nil {
			if forgotten := member; forgotten != "" && !errors.Is(err, kafka.RebalanceInProgress) {
				member = ""
				running.Go(func() { c.leave(ctx, group, forgotten) })
			}
			if ctx.Err() == nil {
				log.Warn("join group failed, will retry", "err", c.explainJoin(err, group, topic))
			}
			continue
		}
		log.Debug("joined the group", "generation", gen.ID, "partitions", len(gen.Assignments[topic]))
		member = gen.MemberID
		// One function does all the work. The library ends the generation when any of its
		// functions returns, and this function returns last.
		running.Add(1)
		gen.Start(func(ended context.Context) {
			defer running.Done()
			g := &generation{cluster: c, gen: gen, topic: topic, assigned: balancer.takeCount(),
				toSend: map[int]Commit{}, last: map[int]Commit{}, commitRequests: make(chan chan error)}
			if !g.run(ctx, ended, serve) {
				rejected.Reset()
				return
			}
			// Each generation repeats the work that was done and not committed. While the
			// coordinator rejects every commit, generations must not follow each other at once.
			retry.Sleep(ctx, rejected.NextBackOff())
		})
	}
	return nil
}

// generation is this member's share of a group between two rebalances. Its methods are safe
// for concurrent use.
type generation struct {
	cluster *Cluster
	gen     *kafka.Generation
	topic   string
	// assigned is the number of partitions that this member has handed out as the group's
	// leader; -1 if it is not the leader.
	assigned int

	mu         sync.Mutex
	partitions int            // of the topic, when the generation began
	toSend     map[int]Commit // by partition: commits that are still to be sent
	last       map[int]Commit // by partition: the latest commit, sent or not

	commitRequests chan chan error // each asks for a commit at once, and gets its error
}

// run serves the claims until the generation or the caller's ctx has ended. It reports
// whether the group has rejected a commit because the partitions may belong to another member.
func (g *generation) run(ctx, ended context.Context, serve func(context.Context, wire.Claim)) (rejected bool) {
	ctx, revoke := context.WithCancel(ctx)
	defer revoke()
	stop := context.AfterFunc(ended, revoke)
	defer stop()

	var serves sync.WaitGroup
	serves.Go(func() {
		commits, ok := g.startCommits(ctx)
		if !ok {
			return
		}
		for _, a := range g.gen.Assignments[g.topic] {
			serves.Go(func() {
				if claim, ok := g.claim(ctx, a.ID, commits); ok {
					serve(ctx, claim)
				}
			})
		}
	})
	changed := false // written by watch; read after serves.Wait
	serves.Go(func() { changed = g.watch(ctx, revoke) })
	gone := g.commitUntil(ctx, revoke)
	serves.Wait()
	g.commitLast()
	if changed || gone {
		// Returning makes the member rejoin. Otherwise, if a broker rejects this member's commits
		// and accepts its heartbeats, the member's partitions would stay unread.
		return gone
	}
	// Returning now would end the generation, and another would begin at once. Wait until ctx
	// or the coordinator ends it.
	<-ended.Done()
	return false
}

// commitUntil commits at every interval, and when asked, until ctx ends. When the group says
// that the partitions may belong to another member, commitUntil ends ctx by revoke and reports
// true. A commit in flight when ctx ends may take finalCommitTimeout more, so that a broker that
// does not answer does not keep a process from stopping in time.
func (g *generation) commitUntil(ctx context.Context, revoke func()) (gone bool) {
	lingering, cancel := retry.Linger(ctx, finalCommitTimeout)
	defer cancel()
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for ctx.Err() == nil { // select prefers no case, and a tick may be ready as well
		var answer chan error
		select {
		case <-ctx.Done():
			return gone
		case <-tick.C:
		case answer = <-g.commitRequests:
		}
		err := g.commit(lingering)
		if evicted(err) {
			gone = true
			revoke()
		}
		if answer != nil {
			answer <- err
		}
	}
	return gone
}

// commitLast commits what is done after the claims have ended. If the commit fails, as while
// the coordinator moves, commitLast retries for finalCommitTimeout: the next owner repeats
// everything that is not committed. It does not retry when the member was evicted.
func (g *generation) commitLast() {
	lingering, cancel := context.WithTimeout(context.Background(), finalCommitTimeout)
	defer cancel()
	pauses := retry.NewBackOff()
	for err := g.commit(lingering); err != nil && !evicted(err) && retry.Sleep(lingering, pauses.NextBackOff()); {
		err = g.commit(lingering)
	}
}

// commit sends the offsets that are done. If it fails, they stay to be sent again. ctx must
// not be that of a claim, because the last commit comes after the claims have ended.
func (g *generation) commit(ctx context.Context) error {
	g.mu.Lock()
	commits, partitions := g.toSend, g.partitions
	g.toSend = map[int]Commit{}
	g.mu.Unlock()
	if len(commits) == 0 {
		return nil
	}
	err := g.send(ctx, commits, partitions)
	if err == nil {
		return nil
	}
	g.cluster.opts.Logger.Warn("commit failed", "group", g.gen.GroupID, "topic", g.topic, "err", err)
	g.mu.Lock()
	defer g.mu.Unlock()
	for partition, commit := range commits {
		if _, newer := g.toSend[partition]; !newer {
			g.toSend[partition] = commit
		}
	}
	return err
}

// send sends the commits of this generation. It does not use the library's commit, which
// cannot carry metadata. send adds the number of partitions to the metadata, for begin.
func (g *generation) send(ctx context.Context, commits map[int]Commit, partitions int) error {
	var offsets []kafka.OffsetCommit
	for number, c := range commits {
		offsets = append(offsets, kafka.OffsetCommit{Partition: number, Offset: c.Offset, Metadata: wire.WithPartitions(c.Metadata, partitions)})
	}
	return g.cluster.commit(ctx, g.topic, offsets, kafka.OffsetCommitRequest{GroupID: g.gen.GroupID, GenerationID: int(g.gen.ID), MemberID: g.gen.MemberID})
}

// note stores a commit of a partition, to be sent with the next commit.
func (g *generation) note(partition int, c Commit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.toSend[partition], g.last[partition] = c, c
}

// watch ends the generation, and reports true, when the number of partitions differs from the
// number that this member has handed out as the leader. It replaces the library's watcher,
// which compares with the number that it finds after the assignment. So the library's
// watcher misses partitions that were added in between, and while there is no topic it ends
// every generation at once.
func (g *generation) watch(ctx context.Context, revoke func()) bool {
	for g.assigned >= 0 && retry.Sleep(ctx, watchPartitions) {
		n, err := g.cluster.Partitions(ctx, g.topic)
		if err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition) {
			continue
		}
		if n != g.assigned {
			g.cluster.opts.Logger.Info("number of partitions changed", "topic", g.topic, "from", g.assigned, "to", n)
			revoke()
			return true
		}
	}
	return false
}

// countingBalancer assigns ranges of partitions and remembers the number of partitions.
type countingBalancer struct {
	kafka.RangeGroupBalancer
	n atomic.Int64 // the number of partitions plus 1; 0: not the leader
}

// AssignGroups implements kafka.GroupBalancer. The library calls it only on the leader.
func (b *countingBalancer) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	b.n.Store(int64(len(partitions)) + 1)
	return b.RangeGroupBalancer.AssignGroups(members, partitions)
}

// takeCount returns the number of partitions of the last assignment, and forgets it. It
// returns -1 if there was none.
func (b *countingBalancer) takeCount() int { return int(b.n.Swap(0)) - 1 }

// dialer returns the dialer of a membership. After ctx has ended, a blocked read lasts at
// most stopReadTimeout. The library does not interrupt a join, which may wait for slow
// members for many seconds. When connCtx ends, all connections are closed.
func (c *Cluster) dialer(ctx, connCtx context.Context) *kafka.Dialer {
	dial := func(dialing context.Context, network, address string) (net.Conn, error) {
		conn, err := c.opts.Dial(dialing, network, address)
		if err != nil {
			return nil, err
		}
		slow := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now().Add(stopReadTimeout)) })
		over := context.AfterFunc(connCtx, func() { conn.Close() })
		return &boundConn{conn, func() { slow(); over() }}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &kafka.Dialer{
		ClientID: c.member,
		Timeout:  c.connect.timeout(),
		DialFunc: func(dialing context.Context, network, address string) (net.Conn, error) {
			dialing, cancel := context.WithCancel(dialing)
			defer cancel()
			defer context.AfterFunc(connCtx, cancel)()
			return c.connect.open(dialing, dial, network, address)
		},
	}
}

// boundConn releases its context callbacks when it is closed.
type boundConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (b *boundConn) Close() error {
	b.release()
	return b.Conn.Close()
}
