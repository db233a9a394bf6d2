package ops

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Appended is how many records were appended to a topic, by time.
type Appended struct {
	Topic string         `json:"topic"`
	Steps []AppendedStep `json:"steps"` // the oldest first
}

// AppendedStep is the number of records that were appended in [From, To).
type AppendedStep struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Records int64     `json:"records"`
}

// Appended returns how many records reached the close topic within the last while, in steps of equal
// length. It asks for offsets by append time, and reads no record. Records that Kafka has deleted
// are not counted.
func (p Pipeline) Appended(ctx context.Context, within time.Duration, steps int) (Appended, error) {
	if err := p.reachKafka(ctx); err != nil {
		return Appended{}, err
	}
	return countAppended(ctx, p.Kafka, p.Config.Topics.Close, time.Now(), within, steps)
}

func countAppended(ctx context.Context, log ForecastLog, topic string, now time.Time, within time.Duration, steps int) (Appended, error) {
	step := within / time.Duration(steps)
	begin := now.UTC().Truncate(step).Add(step - within)
	a := Appended{Topic: topic, Steps: make([]AppendedStep, steps)}
	for i := range a.Steps {
		a.Steps[i].From, a.Steps[i].To = begin.Add(time.Duration(i)*step), begin.Add(time.Duration(i+1)*step)
	}
	n, err := log.Partitions(ctx, topic)
	if err != nil {
		return Appended{}, err
	}
	byPartition := make([]counts, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(partitionsAtOnce)
	for p := range n {
		g.Go(func() error {
			first, end, err := log.Bounds(ctx, topic, p)
			offsets := make([]int64, steps+1)
			for i := range offsets {
				offsets[i] = end
				if at := begin.Add(time.Duration(i) * step); err == nil && at.Before(now) && first < end {
					offsets[i], err = log.OffsetAt(ctx, topic, p, at)
				}
			}
			byPartition[p] = count(first, end, offsets)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Appended{}, err
	}
	for _, c := range byPartition {
		for i, n := range c.steps {
			a.Steps[i].Records += n
		}
	}
	return a, nil
}
