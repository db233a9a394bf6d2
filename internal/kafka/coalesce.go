package kafka

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/orderclose/orderclose/internal/wire"
)

// Coalescer combines many small appends into few requests. An append to a partition without a
// request in flight is sent at once. The messages that arrive for a partition while a request to
// it is in flight go out with the next request. So an append waits for two round trips at most,
// unless a request is slow or the messages exceed one request. A Coalescer is safe for
// concurrent use.
type Coalescer struct {
	cluster *Cluster
	drains  sync.WaitGroup

	mu     sync.Mutex
	queues map[topicPartition]*queue // has an entry while drain runs for the partition
}

// queue holds the waiting messages of a partition and, at the same index, their callers.
type queue struct {
	messages []wire.Message
	callers  []caller
}

// caller is one waiting Append. done is buffered, so that a caller that has returned does
// not block the sender.
type caller struct {
	ctx  context.Context
	done chan<- error
}

// take removes and returns the first n messages.
func (q *queue) take(n int) queue {
	first := queue{q.messages[:n:n], q.callers[:n:n]}
	q.messages, q.callers = q.messages[n:], q.callers[n:]
	return first
}

// dropCanceled removes the messages whose callers have returned. Their Append has failed, and
// the caller may have appended the message elsewhere since.
func (q *queue) dropCanceled() {
	if !slices.ContainsFunc(q.callers, func(c caller) bool { return c.ctx.Err() != nil }) {
		return
	}
	var kept queue
	for i, c := range q.callers {
		if c.ctx.Err() == nil {
			kept.messages, kept.callers = append(kept.messages, q.messages[i]), append(kept.callers, c)
		}
	}
	*q = kept
}

// NewCoalescer returns a Coalescer that appends to the cluster.
func NewCoalescer(c *Cluster) *Coalescer {
	return &Coalescer{cluster: c, queues: map[topicPartition]*queue{}}
}

// Append writes the message to the partition of its key, and returns when all in-sync
// replicas have it. Its errors are those of Cluster.Partitions and Cluster.Append. If ctx ends
// first, Append returns ctx's error. A message that is in flight then may still be written. A
// message that still waits behind another request is not sent.
func (c *Coalescer) Append(ctx context.Context, topic string, m wire.Message) error {
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

// Close waits until all appends have finished. Append must not be called after Close.
func (c *Coalescer) Close() { c.drains.Wait() }

func (c *Coalescer) enqueue(tp topicPartition, m wire.Message, who caller) {
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

// drain sends the waiting messages of a partition, request after request, until none is
// left. It uses no context of a caller, because each request serves many callers.
func (c *Coalescer) drain(tp topicPartition) {
	for {
		c.mu.Lock()
		q := c.queues[tp]
		if q.dropCanceled(); len(q.messages) == 0 {
			delete(c.queues, tp)
			c.mu.Unlock()
			return
		}
		batch := q.take(wire.Fitting(q.messages))
		c.mu.Unlock()
		c.send(tp, batch)
	}
}

func (c *Coalescer) send(tp topicPartition, batch queue) {
	_, err := c.cluster.Append(context.Background(), tp.topic, tp.partition, batch.messages)
	if len(batch.messages) > 1 && errors.Is(err, wire.ErrRefused) {
		for len(batch.messages) > 0 { // the broker rejects one of the messages, not all
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

// Exists reports whether the topic exists.
func (c *Coalescer) Exists(ctx context.Context, topic string) (bool, error) {
	return c.cluster.Exists(ctx, topic)
}
