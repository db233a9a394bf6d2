package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"orderclose"
	"orderclose/internal/partition"
)

// Times of a group membership. A crash is noticed after the session timeout, and
// that is the lateness a crash costs; heartbeats are far more frequent because
// they are also how a member learns of a planned rebalance.
const (
	sessionTimeout   = 6 * time.Second // the least that brokers allow by default
	heartbeatEvery   = 250 * time.Millisecond
	commitEvery      = 200 * time.Millisecond
	rejoinBackoff    = 250 * time.Millisecond
	rebalanceTimeout = 10 * time.Second
	watchPartitions  = 5 * time.Second
	leaveTimeout     = 4 * time.Second // for what is under way when a member stops
	lastCommit       = 2 * time.Second // for the last commit of a generation, tries and all
	// memberTimeout is for all of it: what is under way, the last commit, and leaving the
	// group. A process has 10 s to stop.
	memberTimeout = 8 * time.Second
)

// Consume reads a topic as a member of a group until ctx ends. For each
// partition that the group gives to this member, it calls serve in a goroutine
// of its own. serve must return when its context ends, which is when the
// partition may go to another member, and not before.
//
// What serve reports by Claim.Done is committed every 200 ms, and once more
// after all the serves of a generation have returned, which is tried for 2 s. If the
// group refuses a commit the partitions may be somebody else's: the contexts end at once.
//
// Consume retries whatever fails and returns nil when ctx has ended, all
// serves have returned and the group has been left.
func (c *Cluster) Consume(ctx context.Context, group, topic string, serve func(context.Context, orderclose.Claim)) error {
	balancer := &countingBalancer{}
	connections, closeAll := partition.Linger(ctx, memberTimeout)
	defer closeAll()
	cg, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                group,
		Brokers:           []string{anyBroker},
		Dialer:            c.dialer(ctx, connections),
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
	var running sync.WaitGroup // the library does not wait for one that it starts too late
	defer running.Wait()
	// Close also waits for the functions of the generation, and so for the last
	// commit; Next does not.
	defer cg.Close()
	log := c.opts.Logger.With("group", group, "topic", topic)
	member := "" // who the library is in the group; see leave
	refused := partition.NewBackOff()
	for ctx.Err() == nil {
		gen, err := cg.Next(ctx)
		if err != nil {
			if forgotten := member; forgotten != "" && !errors.Is(err, kafka.RebalanceInProgress) {
				member = ""
				running.Go(func() { c.leave(ctx, group, forgotten) })
			}
			if ctx.Err() == nil {
				log.Warn("joining the group failed, trying again", "err", c.explainJoin(err, group, topic))
			}
			continue
		}
		log.Debug("joined the group", "generation", gen.ID, "partitions", len(gen.Assignments[topic]))
		member = gen.MemberID
		// One function for everything: the library ends the generation when any of
		// its functions returns, and this one returns last.
		running.Add(1)
		gen.Start(func(ended context.Context) {
			defer running.Done()
			g := &generation{cluster: c, gen: gen, topic: topic, assigned: balancer.took(),
				done: map[int]Commit{}, last: map[int]Commit{}, asked: make(chan chan error)}
			if !g.run(ctx, ended, serve) {
				refused.Reset()
				return
			}
			// What was done and not committed is done again by each generation: while the
			// coordinator refuses every commit, that must not happen as fast as it answers.
			partition.Sleep(ctx, refused.NextBackOff())
		})
	}
	return nil
}

// generation is this member's share of a group between two rebalances.
type generation struct {
	cluster *Cluster
	gen     *kafka.Generation
	topic   string
	// assigned is how many partitions this member handed out as the group's leader;
	// -1 if it is not the leader.
	assigned int

	mu   sync.Mutex
	done map[int]Commit // by partition: what to commit, if it is not yet
	last map[int]Commit // by partition: how it stands

	asked chan chan error // for the next commit, now
}

// run serves the claims until the generation or the caller's ctx has ended. It reports
// whether the group has refused a commit because the partitions are no longer ours.
func (g *generation) run(ctx, ended context.Context, serve func(context.Context, orderclose.Claim)) (refused bool) {
	ctx, revoke := context.WithCancel(ctx)
	defer revoke()
	stop := context.AfterFunc(ended, revoke)
	defer stop()

	var serves sync.WaitGroup
	for _, a := range g.gen.Assignments[g.topic] {
		serves.Go(func() {
			if claim, ok := g.claim(ctx, a.ID); ok {
				serve(ctx, claim)
			}
		})
	}
	changed := false // the serves' to write until they have ended
	serves.Go(func() { changed = g.watch(ctx, revoke) })
	gone := g.commitUntil(ctx, revoke)
	serves.Wait()
	g.commitLast()
	if changed || gone {
		// Returning makes every member rejoin. Otherwise a broker that refuses the commits
		// of this member and accepts its heartbeats would leave its partitions unread.
		return gone
	}
	// Returning early would end the generation, and another would begin at once:
	// wait for its end, which ctx or the coordinator brings.
	<-ended.Done()
	return false
}

// commitUntil commits at every interval until ctx ends, or ends it, and reports
// true, when the group says that the partitions are no longer ours.
func (g *generation) commitUntil(ctx context.Context, revoke func()) (gone bool) {
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return gone
		case <-tick.C:
			if err := g.commit(context.Background()); evicted(err) {
				gone = true
				revoke()
			}
		case answer := <-g.asked:
			err := g.commit(context.Background())
			if evicted(err) {
				gone = true
				revoke()
			}
			answer <- err
		}
	}
}

// commitLast commits what is done when the claims have ended. If that fails, as
// while the coordinator moves, it is tried again for a while: what is not committed
// is done again by the next owner. A refusal is final.
func (g *generation) commitLast() {
	lingering, cancel := context.WithTimeout(context.Background(), lastCommit)
	defer cancel()
	pauses := partition.NewBackOff()
	for err := g.commit(lingering); err != nil && !evicted(err) && partition.Sleep(lingering, pauses.NextBackOff()); {
		err = g.commit(lingering)
	}
}

// commit sends the offsets that are done. On failure they stay to be sent again. ctx
// is not a claim's: the last commit comes after that has ended.
func (g *generation) commit(ctx context.Context) error {
	g.mu.Lock()
	done := g.done
	g.done = map[int]Commit{}
	g.mu.Unlock()
	if len(done) == 0 {
		return nil
	}
	err := g.send(ctx, done)
	if err == nil {
		return nil
	}
	g.cluster.opts.Logger.Warn("commit failed", "group", g.gen.GroupID, "topic", g.topic, "err", err)
	g.mu.Lock()
	defer g.mu.Unlock()
	for partition, commit := range done {
		if _, newer := g.done[partition]; !newer {
			g.done[partition] = commit
		}
	}
	return err
}

// send commits in the name of this generation. The library's own way cannot carry
// metadata.
func (g *generation) send(ctx context.Context, done map[int]Commit) error {
	var commits []kafka.OffsetCommit
	for partition, c := range done {
		commits = append(commits, kafka.OffsetCommit{Partition: partition, Offset: c.Offset, Metadata: c.Metadata})
	}
	res, err := g.cluster.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID:      g.gen.GroupID,
		GenerationID: int(g.gen.ID),
		MemberID:     g.gen.MemberID,
		Topics:       map[string][]kafka.OffsetCommit{g.topic: commits},
	})
	if err != nil {
		return err
	}
	for _, p := range res.Topics[g.topic] {
		if p.Error != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, p.Error)
		}
	}
	return nil
}

func (g *generation) note(partition int, c Commit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done[partition], g.last[partition] = c, c
}

// claim turns an assignment into a Claim: where the former owner left it, or at
// the log's start if nothing was committed yet. It reports false if ctx ended
// meanwhile.
func (g *generation) claim(ctx context.Context, number int) (orderclose.Claim, bool) {
	claim := orderclose.Claim{
		Topic: g.topic, Partition: number,
		Done:    func(offset int64, acked string) { g.note(number, Commit{Offset: offset, Metadata: acked}) },
		Confirm: func(asking context.Context) error { return g.confirm(asking, ctx, number) },
	}
	for pauses := partition.NewBackOff(); ; {
		commit, found, err := g.begin(ctx, number)
		if err == nil {
			claim.Fresh = found == nothing
			if found == added { // so that it is noticed if the partition goes
				g.note(number, commit)
			}
			claim.Offset, claim.Acked = commit.Offset, commit.Metadata
			g.mu.Lock()
			g.last[number] = commit
			g.mu.Unlock()
			return claim, true
		}
		if ctx.Err() == nil && pauses.Say() {
			g.cluster.opts.Logger.Warn("cannot find where to begin, trying again", "topic", g.topic, "partition", number, "err", err)
		}
		if !partition.Sleep(ctx, pauses.NextBackOff()) {
			return claim, false
		}
	}
}

// found is what there is of a partition when it is claimed.
type found int

const (
	committed found = iota
	// nothing is committed: this is the first start, or the topic was deleted.
	nothing
	// added: nothing is committed, and nothing is lost. The partition is a new one of a
	// topic that existed.
	added
)

// begin returns where to begin with a partition. Partitions are added behind those
// that a topic has. So one without a commit is new if one before it has a commit, and
// its log still begins at 0: the commits of a topic are deleted with the topic. A commit
// that names another topic id was written after that and shows nothing.
func (g *generation) begin(ctx context.Context, number int) (Commit, found, error) {
	commits, err := g.cluster.commits(ctx, g.gen.GroupID, g.topic, number+1)
	if err != nil {
		return Commit{}, committed, err
	}
	if commits[number].Offset >= 0 {
		return commits[number], committed, nil
	}
	first, _, err := g.cluster.Bounds(ctx, g.topic, number)
	if err != nil {
		return Commit{}, committed, err
	}
	id, err := g.cluster.idOf(ctx, g.topic)
	if err != nil {
		return Commit{}, committed, err
	}
	is := nothing
	if first == 0 && slices.ContainsFunc(commits, func(c Commit) bool { return c.Offset >= 0 && mayBeOf(id, c) }) {
		is = added
	}
	return Commit{Offset: first}, is, nil
}

// mayBeOf says whether a commit may be of the topic with an id: it is not if both are
// known and differ.
func mayBeOf(id [16]byte, c Commit) bool {
	of := partition.DecodeLog(c.Metadata).Topic
	return of == noTopicID || id == noTopicID || of == id
}

// watch ends the generation, and reports true, when the topic has another number
// of partitions than were handed out. The library's own watcher compares with
// what it finds after the assignment, so that what is made in between stays
// unread; and while there is no topic it ends every generation at once.
func (g *generation) watch(ctx context.Context, revoke func()) bool {
	for g.assigned >= 0 && partition.Sleep(ctx, watchPartitions) {
		n, err := g.cluster.Partitions(ctx, g.topic)
		if err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition) {
			continue
		}
		if n != g.assigned {
			g.cluster.opts.Logger.Info("the number of partitions has changed", "topic", g.topic, "from", g.assigned, "to", n)
			revoke()
			return true
		}
	}
	return false
}

// countingBalancer assigns ranges and remembers of how many partitions.
type countingBalancer struct {
	kafka.RangeGroupBalancer
	n atomic.Int64 // one more than the partitions; 0: not the leader
}

// AssignGroups implements kafka.GroupBalancer; only the leader is asked.
func (b *countingBalancer) AssignGroups(members []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	b.n.Store(int64(len(partitions)) + 1)
	return b.RangeGroupBalancer.AssignGroups(members, partitions)
}

// took returns the number of the last assignment, once; -1 if there was none.
func (b *countingBalancer) took() int { return int(b.n.Swap(0)) - 1 }

// dialer returns what a membership connects with. Reads that wait when ctx ends do so
// for leaveTimeout at most: the library does not interrupt a join, which may wait for
// slow members for many seconds. When connections ends, all of them are closed.
func (c *Cluster) dialer(ctx, connections context.Context) *kafka.Dialer {
	dial := func(dialing context.Context, network, address string) (net.Conn, error) {
		conn, err := c.opts.Dial(dialing, network, address)
		if err != nil {
			return nil, err
		}
		slow := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now().Add(leaveTimeout)) })
		over := context.AfterFunc(connections, func() { conn.Close() })
		return &boundConn{conn, func() { slow(); over() }}, nil
	}
	return &kafka.Dialer{
		ClientID: c.opts.ClientID,
		Timeout:  c.connect.timeout(),
		DialFunc: func(dialing context.Context, network, address string) (net.Conn, error) {
			dialing, cancel := context.WithCancel(dialing)
			defer cancel()
			defer context.AfterFunc(connections, cancel)()
			return c.connect.open(dialing, dial, network, address)
		},
	}
}

// boundConn forgets the contexts when it is closed.
type boundConn struct {
	net.Conn
	forget func()
}

// Close implements net.Conn.
func (b *boundConn) Close() error {
	b.forget()
	return b.Conn.Close()
}
