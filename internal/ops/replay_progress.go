package ops

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
)

const (
	// keepEvery is how often a replay keeps its progress.
	keepEvery = time.Second
	// keepTimeout bounds a commit of the progress: an interrupted command waits for it.
	keepTimeout = 5 * time.Second
)

// resume sets Spans to what earlier runs of this replay have left of the window. A user who may not
// read the commits gets a replay that does not keep its progress.
func (p *ReplayPlan) resume(ctx context.Context, log Log, partitions int) (err error) {
	p.Spans = slices.Clone(p.window)
	if p.Groups == "" {
		return nil
	}
	if p.group, err = p.progressGroup(ctx, log); err != nil {
		return err
	}
	commits, err := log.Commits(ctx, p.group, p.Topic, partitions)
	if refused := (*kafka.AccessError)(nil); errors.As(err, &refused) {
		p.NotKept = err.Error()
		return nil
	}
	if err != nil || p.Restart {
		return err
	}
	p.Spans = nil
	for _, s := range p.window {
		first := min(max(s.First, commits[s.Partition].Offset), s.End)
		p.Handled += first - s.First
		if s.First = first; s.Len() > 0 {
			p.Spans = append(p.Spans, s)
		}
	}
	return nil
}

// progressGroup returns the name of the group of this replay. Replays of another window, of other
// orders or categories, and of a topic that was recreated, have other groups.
func (p *ReplayPlan) progressGroup(ctx context.Context, log Log) (string, error) {
	id, err := log.TopicID(ctx, p.Topic)
	if err != nil {
		return "", err
	}
	identity, err := json.Marshal([]any{
		p.Topic, id, p.From.UnixMilli(), p.To.UnixMilli(), slices.Sorted(slices.Values(p.Orders)), slices.Sorted(slices.Values(p.Categories)),
	})
	if err != nil {
		return "", fmt.Errorf("name the progress of the replay: %w", err)
	}
	sum := sha256.Sum256(identity)
	return p.Groups + hex.EncodeToString(sum[:8]), nil
}

// replayProgress keeps how far a replay has come: as commits of a consumer group without members, which
// Kafka deletes when they are older than its retention of offsets, a week by default. An error does not
// stop the replay: notKept has the error of the partition, until a later commit of it succeeds.
type replayProgress struct {
	log          Log
	topic, group string // group is empty if the progress is not kept
	kept         time.Time
	notKept      map[int]error
}

// keep keeps that the records below the offset are handled, also if the context has ended.
func (p *replayProgress) keep(ctx context.Context, partition int, offset int64) error {
	if p.group == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	err := p.log.SetPosition(ctx, p.group, p.topic, partition, offset)
	if delete(p.notKept, partition); err != nil {
		p.notKept[partition] = err
	}
	p.kept = time.Now()
	return err
}

// problem returns why the progress of a partition is not kept; "": it is of all.
func (p *replayProgress) problem() string {
	for _, partition := range slices.Sorted(maps.Keys(p.notKept)) {
		return p.notKept[partition].Error()
	}
	return ""
}
