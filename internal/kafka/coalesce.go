package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"

	"orderclose"
)

// Coalescer turns many small appends into few requests without making any of
// them wait: what arrives for a partition while a request to it is under way
// goes out with the next one. So one caller pays one round trip, and a thousand
// pay a few between them.
type Coalescer struct {
	cluster *Cluster
	drains  sync.WaitGroup

	mu     sync.Mutex
	queues map[topicPartition]*queue // present while a drain works on it
}

// queue is what waits for a partition: messages and, at the same index, who waits
// for the answer.
type queue struct {
	messages []orderclose.Message
	callers  []caller
}

// caller is one Append that waits. done is buffered: a caller that left blocks
// nobody.
type caller struct {
	ctx  context.Context
	done chan<- error
}

// take removes and returns the first n.
func (q *queue) take(n int) queue {
	first := queue{q.messages[:n:n], q.callers[:n:n]}
	q.messages, q.callers = q.messages[n:], q.callers[n:]
	return first
}

// leave drops what nobody waits for any more: its caller was told that it failed, and
// may have done otherwise since.
func (q *queue) leave() {
	if !slices.ContainsFunc(q.callers, func(c caller) bool { return c.ctx.Err() != nil }) {
		return
	}
	var stay queue
	for i, c := range q.callers {
		if c.ctx.Err() == nil {
			stay.messages, stay.callers = append(stay.messages, q.messages[i]), append(stay.callers, c)
		}
	}
	*q = stay
}

// NewCoalescer returns a Coalescer that appends to the cluster.
func NewCoalescer(c *Cluster) *Coalescer {
	return &Coalescer{cluster: c, queues: map[topicPartition]*queue{}}
}

// Append writes the message to the partition that its key belongs to, and
// returns when all in-sync replicas have it. Errors are those of
// Cluster.Append. If ctx ends while the message is under way it may still be
// written; if it ends before, as behind another request, the message is not sent.
func (c *Coalescer) Append(ctx context.Context, topic string, m orderclose.Message) error {
	n, err := c.cluster.Partitions(ctx, topic)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	c.enqueue(topicPartition{topic, PartitionOf(m.Key, n)}, m, caller{ctx, done})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits until nothing is under way any more. Append must not be called
// after it.
func (c *Coalescer) Close() { c.drains.Wait() }

func (c *Coalescer) enqueue(tp topicPartition, m orderclose.Message, who caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, draining := c.queues[tp]
	if !draining {
		q = &queue{}
		c.queues[tp] = q
		c.drains.Go(func() { c.drain(tp) })
	}
	q.messages, q.callers = append(q.messages, m), append(q.callers, who)
}

// drain sends what waits for a partition, request after request, until nothing
// does. It has no context of a caller: its requests are of many.
func (c *Coalescer) drain(tp topicPartition) {
	for {
		c.mu.Lock()
		q := c.queues[tp]
		if q.leave(); len(q.messages) == 0 {
			delete(c.queues, tp)
			c.mu.Unlock()
			return
		}
		batch := q.take(orderclose.Fitting(q.messages))
		c.mu.Unlock()
		c.send(tp, batch)
	}
}

func (c *Coalescer) send(tp topicPartition, batch queue) {
	_, err := c.cluster.Append(context.Background(), tp.topic, tp.partition, batch.messages)
	if len(batch.messages) > 1 && errors.Is(err, orderclose.ErrRefused) {
		for len(batch.messages) > 0 { // one of them is to blame, not all
			if one := batch.take(1); one.callers[0].ctx.Err() == nil {
				c.send(tp, one)
			}
		}
		return
	}
	for _, c := range batch.callers {
		c.done <- err
	}
}

// Exists says whether there is such a topic.
func (c *Coalescer) Exists(ctx context.Context, topic string) (bool, error) {
	return c.cluster.Exists(ctx, topic)
}
