package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// generation is this member's share of a group between two rebalances. Its methods are safe
// for concurrent use.
type generation struct {
	*membership
	number int32
	own    []int // the assigned partitions
	// assigned is the number of partitions that this member has handed out as the group's
	// leader; notLeading if it is not the leader; notKnown if it leads since before it was started again.
	assigned int

	topicID [16]byte // of the topic when the generation began; zero: not known. startCommits sets it

	mu     sync.Mutex
	last   map[int]Commit // by partition: the latest commit, sent or not
	unsent map[int]bool   // the partitions whose last commit is still to be sent

	noted          chan struct{}   // gets an element when a commit is to be sent
	commitRequests chan chan error // each asks for a commit at once, and gets its error
}

// claimedLog is the log of a claimed partition.
type claimedLog struct {
	*generation
	number int          // of the partition
	end    atomic.Int64 // of the log when noteEnds asked last; 0: it has not
}

// Values of generation.assigned that are no number of partitions.
const (
	notLeading = -1
	notKnown   = -2
)

// run serves the claims until ctx ends, or until the partitions may go to another member. It
// reports whether the group has rejected a commit for that reason.
func (g *generation) run(ctx context.Context, serve func(context.Context, wire.Claim)) (rejected bool) {
	alive, died := context.WithCancel(context.WithoutCancel(ctx)) // until the last commit
	var heartbeats sync.WaitGroup
	defer heartbeats.Wait()
	defer died()
	ctx, revoke := context.WithCancel(ctx)
	defer revoke()
	heartbeats.Go(func() { g.beat(alive, revoke) })

	var serves sync.WaitGroup
	serves.Go(func() {
		commits, ok := g.startCommits(ctx)
		if !ok {
			return
		}
		serves.Go(func() { g.watch(ctx, revoke) })
		for _, number := range g.own {
			serves.Go(func() {
				if claim, ok := g.claim(ctx, number, commits[number]); ok {
					serve(ctx, claim)
				}
			})
		}
	})
	rejected = g.commitUntil(ctx, revoke)
	serves.Wait()
	g.commitLast()
	return rejected
}

// beat sends heartbeats until ctx ends, also while claims end. It calls revoke when the partitions may go to another member: the
// coordinator says so, or has not answered for the session timeout, nor a heartbeat that was sent before its end. A coordinator
// that moves, or a broken connection, ends nothing. While brokers answer that there is no coordinator, nobody can join, and the
// claims go on. A broker that is cut off from the others may be wrong: then two members repeat records, and this one cannot commit.
func (g *generation) beat(ctx context.Context, revoke func()) {
	heard, session := time.Now(), g.cluster.opts.SessionTimeout
	var err error
	for g.cluster.heartbeats.wait(ctx, err != nil) {
		sent := time.Now()
		limited, cancel := context.WithTimeout(ctx, session+requestTimeout-time.Since(heard)) //mutant:heartbeat-cut-off
		err = g.heartbeat(limited)
		cancel()
		switch {
		case err == nil, noCoordinator(err): //mutant:no-coordinator-ends-claims
			heard = sent
		case errors.Is(err, kafka.RebalanceInProgress):
			heard = sent
			g.cluster.heartbeats.rebalanced()
			revoke()
		case evicted(err), time.Since(heard) >= session: //mutant:session-over-ignored,broken-ends-claims
			g.log.Warn("membership in the group ended, joining again", "last_heartbeat", heard, "err", err)
			revoke()
			return
		}
	}
}

// commitUntil commits within commitEvery what is done, and at once when asked, until ctx ends. When the group says
// that the partitions may belong to another member, commitUntil ends ctx by revoke and reports
// true. A commit in flight when ctx ends may take finalCommitTimeout more, so that a broker that
// does not answer does not keep a process from stopping in time.
func (g *generation) commitUntil(ctx context.Context, revoke func()) (gone bool) {
	finishing, cancel := retry.WithFinishTime(ctx, finalCommitTimeout)
	defer cancel()
	// due is the time of the next commit; nil: nothing is unsent.
	var due <-chan time.Time
	for {
		var answer chan error
		select {
		case <-ctx.Done():
			return gone
		case <-g.noted:
			if due == nil {
				due = time.After(commitEvery)
			}
			continue
		case <-due:
			due = nil
		case answer = <-g.commitRequests:
		}
		err := g.commit(finishing)
		if evicted(err) {
			gone = true
			revoke()
		}
		if err != nil { //mutant:failed-commit-lost
			due = time.After(commitEvery)
		}
		if answer != nil {
			answer <- err
		}
	}
}

// commitLast commits what is done after the claims have ended. If the commit fails, as while
// the coordinator moves, commitLast retries for finalCommitTimeout: the next owner repeats
// everything that is not committed. It does not retry when the member was evicted, or the topic is gone.
func (g *generation) commitLast() {
	finishing, cancel := context.WithTimeout(context.Background(), finalCommitTimeout)
	defer cancel()
	retries := func(err error) bool { return err != nil && !evicted(err) && !errors.Is(err, ErrNoTopic) }
	_ = repeat(finishing, finalCommitTimeout, retries, func() error { return g.commit(finishing) })
}

// commit sends the offsets that are done. If it fails, they stay to be sent again. ctx must not be that of a claim, because the last commit comes
// after the claims have ended.
func (g *generation) commit(ctx context.Context) error {
	g.mu.Lock()
	sent := g.unsent
	g.unsent = map[int]bool{}
	var offsets []kafka.OffsetCommit
	for number := range sent {
		offsets = append(offsets, kafka.OffsetCommit{Partition: number, Offset: g.last[number].Offset, Metadata: g.last[number].Metadata})
	}
	g.mu.Unlock()
	err := g.cluster.commit(ctx, g.topic, offsets, kafka.OffsetCommitRequest{GroupID: g.group, GenerationID: int(g.number), MemberID: g.id,
		InstanceID: g.instance})
	if err != nil {
		g.log.Warn("commit failed", "err", err)
		g.mu.Lock()
		maps.Copy(g.unsent, sent)
		g.mu.Unlock()
	}
	return err
}

// note stores a commit of a partition, to be sent with the next commit.
func (g *generation) note(partition int, c Commit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last[partition], g.unsent[partition] = c, true
	select {
	case g.noted <- struct{}{}:
	default: // commitUntil has not looked since
	}
}

// watch notes where the logs end. If this member leads the group, watch calls revoke when the number of partitions differs from the number that it
// has handed out, and when the topic has another id. Then the members join again. If a topic does not exist for less than topicGone, the claims go on.
func (g *generation) watch(ctx context.Context, revoke func()) {
	seen := time.Now()
	for retry.Sleep(ctx, watchPartitions) {
		g.cluster.noteEnds(ctx)
		if g.assigned == notLeading {
			continue
		}
		if g.assigned == notKnown {
			group, err := g.cluster.Group(ctx, g.group, g.topic)
			if err != nil || group.State != "Stable" {
				continue
			}
			g.assigned = 0
			for _, member := range group.Members {
				g.assigned += len(member.Partitions)
			}
		}
		found, err := g.cluster.transport.describe(ctx, topic.recent, g.topic)
		known := found[0]
		if err != nil || known.exists() { // while no broker answers, a topic is not gone
			seen = time.Now()
		}
		if err != nil || !known.exists() && time.Since(seen) < topicGone {
			continue
		}
		if n := len(known.leaders); n != g.assigned || known.id != g.topicID && g.gone(ctx) {
			g.log.Info("the partitions are assigned again, because their number has changed or the topic was recreated", "from", g.assigned, "to", n)
			revoke()
			return
		}
	}
}

// gone reports whether the topic of the generation is gone, or was recreated. It takes a second if brokers say so.
func (g *generation) gone(ctx context.Context) bool {
	isGone := func(err error) bool { return errors.Is(err, ErrNoTopic) }
	err := repeat(ctx, goneFor, isGone, func() error { //mutant:stale-answer-proves
		id, err := g.cluster.TopicID(ctx, g.topic)
		if err == nil && id != g.topicID {
			return ErrNoTopic
		}
		return err
	})
	return g.topicID != noTopicID && isGone(err) && ctx.Err() == nil
}

// confirm checks that this generation still owns a partition. It commits the partition's latest offset again, and the group rejects the commit if
// another generation has begun. The contexts of the claims have ended when confirm returns that error. While the group has no coordinator, the
// claims go on, as beat says. ctx is the caller's context, claimCtx that of the claim.
func (g *generation) confirm(ctx, claimCtx context.Context, partition int) error {
	g.mu.Lock()
	g.unsent[partition] = true
	g.mu.Unlock()
	err := repeat(claimCtx, heartbeatEvery, noCoordinator, func() error {
		answer := make(chan error, 1)
		select {
		case g.commitRequests <- answer:
			return <-answer // bounded by the requestTimeout of each request
		case <-claimCtx.Done():
			return claimCtx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if noCoordinator(err) {
		return claimCtx.Err()
	}
	return err
}

// startCommits returns the group's commits, by partition, as they are when the generation begins. It retries until it succeeds; ok is false if ctx ends first.
// It sets the id of the topic before: those who compare the id later notice if the commits are of another topic.
func (g *generation) startCommits(ctx context.Context) (commits []Commit, ok bool) {
	g.topicID, _ = g.cluster.TopicID(ctx, g.topic)
	if len(g.own) == 0 {
		return nil, true
	}
	ok = retry.Do(ctx, g.log, "read commits", func(context.Context) (err error) { // not its context: it must not outlast the claim
		commits, err = g.cluster.Commits(ctx, g.group, g.topic, slices.Max(g.own)+1)
		return err
	})
	return commits, ok
}

// claim makes a Claim of an assigned partition. The claim begins at the group's commit, or at
// the start of the log if there is no commit. claim retries until it succeeds; ok is false if
// ctx ends first.
func (g *generation) claim(ctx context.Context, number int, commit Commit) (claim wire.Claim, ok bool) {
	none := commit.Offset < 0
	if none && !retry.Do(ctx, g.log, fmt.Sprintf("find start offset of partition %d", number), func(context.Context) (err error) {
		commit.Offset, _, err = g.cluster.Bounds(ctx, g.topic, number)
		return err
	}) {
		return claim, false
	}
	g.mu.Lock()
	g.last[number] = commit
	g.mu.Unlock()
	log := &claimedLog{generation: g, number: number}
	g.cluster.claimed.Store(log, true)
	context.AfterFunc(ctx, func() { g.cluster.claimed.Delete(log) })
	return wire.Claim{
		Topic: g.topic, Partition: number, Offset: commit.Offset, Acked: commit.Metadata, NoCommit: none,
		Done:    func(offset int64, acked string) { g.note(number, Commit{Offset: offset, Metadata: acked}) },
		Confirm: func(asking context.Context) error { return g.confirm(asking, ctx, number) },
		Log:     wire.ClaimedLog{Topic: g.topicID, End: log.end.Load, Gone: g.gone},
	}, true
}
