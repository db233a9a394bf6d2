package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// startCommits returns the group's commits, by partition, as they are when the generation
// begins, and sets the number of partitions. All claims use this one answer. If each claim sent
// its own request, another claim could commit first, and the partitions of a new topic would
// look as if they had been added later; see begin. It retries until it succeeds; ok is false if
// ctx ends first.
func (g *generation) startCommits(ctx context.Context) (commits []Commit, ok bool) {
	if len(g.own) == 0 {
		return nil, true
	}
	known := slices.Max(g.own) + 1 // the topic has at least so many partitions, because this member has been assigned the last of them
	ok = g.retry(ctx, "read commits", func() error {
		n, err := g.cluster.Partitions(ctx, g.topic)
		if err == nil {
			commits, err = g.cluster.commits(ctx, g.group, g.topic, known)
		}
		g.mu.Lock()
		g.partitions = max(n, known)
		g.mu.Unlock()
		return err
	})
	return commits, ok
}

// claim makes a Claim of an assigned partition. The claim begins at the group's commit, or at
// the start of the log if there is no commit. claim retries until it succeeds; ok is false if
// ctx ends first.
func (g *generation) claim(ctx context.Context, number int, commits []Commit) (claim wire.Claim, ok bool) {
	var commit Commit
	var known bool
	if !g.retry(ctx, fmt.Sprintf("find start offset of partition %d", number), func() (err error) {
		commit, known, err = g.begin(ctx, number, commits[:number+1])
		return err
	}) {
		return claim, false
	}
	g.mu.Lock()
	g.last[number] = commit
	if known && commits[number].Offset < 0 { // it was added: commit now, so that a later deletion of the partition is noticed
		g.unsent[number] = true
		g.toSend()
	}
	g.mu.Unlock()
	return wire.Claim{
		Topic: g.topic, Partition: number, Offset: commit.Offset, Acked: commit.Metadata, NoCommit: !known,
		Done:    func(offset int64, acked string) { g.note(number, Commit{Offset: offset, Metadata: acked}) },
		Confirm: func(asking context.Context) error { return g.confirm(asking, ctx, number) },
	}, true
}

// retry calls do until it succeeds. It returns false if ctx ends first.
func (g *generation) retry(ctx context.Context, what string, do func() error) bool {
	return retry.Do(ctx, g.log, what, func(context.Context) error { return do() }) // do uses ctx: it must not outlast the claim
}

// begin returns the commit at which a partition begins. known is false if records may be lost, because
// there is no commit: this is the first start, or the topic was deleted.
//
// Nothing is lost if the partition was added to an existing topic. That is so if its log still begins
// at 0, and a commit of a partition with a lower number proves that the topic once had fewer
// partitions. New partitions get the highest numbers. Two kinds of commits prove nothing:
//
//   - a commit with another topic id, because it was written before the topic was deleted and
//     recreated;
//   - a commit that was written when the partition already existed, for example by another
//     member at the first start.
func (g *generation) begin(ctx context.Context, number int, commits []Commit) (commit Commit, known bool, err error) {
	if commits[number].Offset >= 0 {
		return commits[number], true, nil
	}
	first, _, err := g.cluster.Bounds(ctx, g.topic, number)
	if err != nil {
		return Commit{}, false, err
	}
	id, err := g.cluster.idOf(ctx, g.topic)
	added := first == 0 && slices.ContainsFunc(commits, func(c Commit) bool { //mutant:added-counts-loss
		// A commit of an older version names no number of partitions, which reads as 0.
		return c.Offset >= 0 && mayBeOf(id, c) && wire.DecodePartitions(c.Metadata) <= number //mutant:first-start-added
	})
	return Commit{Offset: first}, added, err
}

// mayBeOf reports whether a commit may belong to the topic with the given id. It does not if
// both ids are known and differ.
func mayBeOf(id [16]byte, c Commit) bool {
	of := wire.DecodeLog(c.Metadata).Topic
	return of == noTopicID || id == noTopicID || of == id //mutant:recreated-counts-added
}
