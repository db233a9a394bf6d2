package ops

import (
	"context"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
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
	moments := []kafka.Moment{kafka.LogStart, kafka.LogEnd}
	for i := range steps + 1 {
		if at := begin.Add(time.Duration(i) * step); at.Before(now) {
			moments = append(moments, kafka.MomentOf(at))
		}
	}
	byPartition := make([]counts, n)
	for p, answer := range log.Offsets(ctx, kafka.OffsetQueries(topic, n, moments...)) {
		if answer.Err != nil {
			return Appended{}, answer.Err
		}
		first, end := answer.Offsets[0], answer.Offsets[1]
		offsets := answer.Offsets[2:]
		for len(offsets) <= steps { // no record was appended after now
			offsets = append(offsets, end)
		}
		byPartition[p] = count(first, end, offsets)
	}
	for _, c := range byPartition {
		for i, n := range c.steps {
			a.Steps[i].Records += n
		}
	}
	return a, nil
}
