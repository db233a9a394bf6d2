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
	*Cluster
	drains sync.WaitGroup

	mu     sync.Mutex
	queues map[topicPartition][]waiting // has an entry while drain runs for the partition
}

// waiting is the message of one Append that has not been sent. done is buffered, so that a caller
// that has returned does not block the sender.
type waiting struct {
	wire.Message
	ctx  context.Context
	done chan<- error
}

// NewCoalescer returns a Coalescer that appends to the cluster.
func NewCoalescer(c *Cluster) *Coalescer {
	return &Coalescer{Cluster: c, queues: map[topicPartition][]waiting{}}
}

// Append writes the message to the partition of its key, and returns when all in-sync
// replicas have it. Its errors are those of Cluster.Partitions and Cluster.Append. If ctx ends
// first, Append returns ctx's error. A message that is in flight then may still be written. A
// message that still waits behind another request is not sent.
func (c *Coalescer) Append(ctx context.Context, topic string, m wire.Message) error {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	c.enqueue(topicPartition{topic, PartitionOf(m.Key, n)}, waiting{m, ctx, done})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits until all appends have finished. Append must not be called after Close. The cluster stays open.
func (c *Coalescer) Close() { c.drains.Wait() }

func (c *Coalescer) enqueue(tp topicPartition, w waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue, draining := c.queues[tp]
	if !draining {
		c.drains.Go(func() { c.drain(tp) })
	}
	c.queues[tp] = append(queue, w)
}

// drain sends the waiting messages of a partition, request after request, until none is
// left. It uses no context of a caller, because each request serves many callers. It drops messages
// whose callers have returned: their Append has failed, and the caller may have appended the message
// elsewhere since.
func (c *Coalescer) drain(tp topicPartition) {
	for {
		c.mu.Lock()
		queue := slices.DeleteFunc(c.queues[tp], waiting.canceled)
		if len(queue) == 0 {
			delete(c.queues, tp)
			c.mu.Unlock()
			return
		}
		n := wire.Fitting(queue)
		c.queues[tp] = queue[n:]
		c.mu.Unlock()
		c.send(tp, queue[:n])
	}
}

func (w waiting) canceled() bool { return w.ctx.Err() != nil }

func (c *Coalescer) send(tp topicPartition, batch []waiting) {
	messages := make([]wire.Message, len(batch))
	for i, w := range batch {
		messages[i] = w.Message
	}
	_, err := c.Cluster.Append(context.Background(), tp.topic, tp.partition, messages)
	for i, w := range batch {
		switch {
		case len(batch) == 1 || !errors.Is(err, wire.ErrRefused):
			w.done <- err
		case !w.canceled(): // the broker rejects one of the messages, not all
			c.send(tp, batch[i:i+1])
		}
	}
}
