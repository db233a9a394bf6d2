package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
)

// publisher publishes the messages of a workload through a way.
type publisher struct {
	way     way
	run     string
	tracker *tracker
	// first is the number of the first message in the tracker.
	first int
	// retry publishes refused messages again, until they are accepted or ctx ends.
	retry bool
	// progress, if set, is called with the number of messages handed out so far.
	progress func(int)

	mu     sync.Mutex
	refuse error // the first
}

// all publishes every message and returns when all are accepted or refused. With perSecond the
// clock decides when a message is published, up to w.publishers calls at once. With atOnce all
// are due at instant.
func (p *publisher) all(ctx context.Context, w workload, delays []time.Duration, instant time.Time) {
	bodies := make([][]byte, len(delays))
	for i := range bodies {
		bodies[i] = bodyOf(orderID(p.run, p.first+i))
	}
	type span struct{ from, to int }
	spans := make(chan span, len(delays))
	var publishing sync.WaitGroup
	for range w.publishers {
		publishing.Go(func() {
			for s := range spans {
				now := time.Now()
				messages := make([]message, 0, s.to-s.from)
				for i := s.from; i < s.to; i++ {
					due := now.Add(delays[i]).Truncate(time.Millisecond)
					delay := delays[i]
					if w.atOnce {
						due, delay = instant, instant.Sub(now)
					}
					p.tracker.publish(p.first+i, due)
					messages = append(messages, message{OrderID: orderID(p.run, p.first+i), Body: bodies[i], Due: due, Delay: delay})
				}
				p.one(ctx, messages, p.first+s.from)
			}
		})
	}
	start := time.Now()
	for i := 0; i < len(delays) && ctx.Err() == nil; i += w.batch {
		if w.perSecond > 0 {
			sleep(ctx, time.Until(start.Add(time.Duration(i)*time.Second/time.Duration(w.perSecond))))
		}
		if p.progress != nil {
			p.progress(i)
		}
		spans <- span{i, min(i+w.batch, len(delays))}
	}
	close(spans)
	publishing.Wait()
}

// one publishes messages in one call. A call that failed is repeated for all of them, as a
// checkout would, because nobody knows which were accepted.
func (p *publisher) one(ctx context.Context, messages []message, first int) {
	err := p.way.publish(ctx, messages)
	for p.retry && err != nil && sleep(ctx, 50*time.Millisecond) {
		for i := range messages {
			messages[i].Delay = max(0, time.Until(messages[i].Due))
		}
		err = p.way.publish(ctx, messages)
	}
	for i := range messages {
		if err == nil {
			p.tracker.accept(first + i)
		} else {
			p.tracker.refuse()
		}
	}
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse == nil {
		p.refuse = err
		fmt.Fprintln(os.Stderr, "peers: publish:", err)
	}
}

// sleep waits for d; it returns false as soon as ctx ends.
var sleep = retry.Sleep
