package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

// startCommits returns the group's commits, by partition, as they are when the generation begins. It retries until it succeeds; ok is false if ctx ends first.
func (g *generation) startCommits(ctx context.Context) (commits []Commit, ok bool) {
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
	return wire.Claim{
		Topic: g.topic, Partition: number, Offset: commit.Offset, Acked: commit.Metadata, NoCommit: none,
		Done:    func(offset int64, acked string) { g.note(number, Commit{Offset: offset, Metadata: acked}) },
		Confirm: func(asking context.Context) error { return g.confirm(asking, ctx, number) },
	}, true
}
