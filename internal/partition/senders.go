package partition

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// awaitTime is how long Await waits for the answers of an iteration. Nearly all answers
	// arrive within it, and their records then need no other iteration.
	awaitTime = 100 * time.Millisecond
	// SendTime is how long an append to one topic is retried before the remaining records
	// return to the loop. With LingerTime it takes 5 s at most.
	SendTime = 3 * time.Second
	// MaxSendTime is the longest time that records are away from the loop.
	MaxSendTime = SendTime + retry.LingerTime
	// minSendPause and maxSendPause bound how long a topic rests after it did not accept all
	// records in time.
	minSendPause, maxSendPause = 50 * time.Millisecond, 4 * time.Second
)

// Senders append the records of a claim in other goroutines than its loop, so that a topic
// that accepts nothing delays no record of another topic. Each topic has at most one
// goroutine, or one for each partition; see SendParts. An append has a time limit, after which the records that were not accepted
// return to the loop, and the topic rests for a while. Senders belong to the goroutine of
// the claim's loop:
//
//	wait, ok := s.Send(topic, records, then) // any time
//	s.Await()                                // after the last Send of an iteration
//	select { case x := <-s.Sent: s.HandleSent(x) }
//	s.WaitSent()                             // after ctx has ended, before returning
type Senders struct {
	Sent chan *topicSender // appends that have ended

	opts       *OutOptions
	ctx        context.Context
	deadLetter func(refusal)           // makes a dead letter of a refused record
	topics     map[string]*topicSender // by topic, or topic/partition
	split      map[string]bool         // topics of which each partition has a sender of its own; see SendParts
	inFlight   int                     // appends in flight
}

// topicSender appends a claim's records to one topic.
type topicSender struct {
	appender
	records   []wire.RawRecord // in flight
	then      func(SendResult)
	onRefused func(refusal)
	sent      SendResult
	busy      bool
	slow      bool          // Await does not wait for it
	failing   time.Time     // start of the first append since which all appends left records; zero: the last append left none
	pause     time.Duration // how long the topic rests after the last append
	retryAt   time.Time     // no append begins before this time
}

func newSenders(ctx context.Context, o *OutOptions, deadLetter func(refusal)) *Senders {
	return &Senders{Sent: make(chan *topicSender), opts: o, ctx: ctx, deadLetter: deadLetter, topics: map[string]*topicSender{}, split: map[string]bool{}}
}

func (s *Senders) topic(topic string) *topicSender {
	return s.sender(topic, topic, s.opts.group)
}

// sender returns the sender of that name. If there is none, it makes one for the topic.
func (s *Senders) sender(name, topic string, group GroupFunc) *topicSender {
	t := s.topics[name]
	if t == nil {
		t = newTopicSender(s.ctx, s.opts, topic)
		t.onRefused, t.group = s.deadLetter, group
		s.topics[name] = t
	}
	return t
}

// SendParts is Send of copies, to each partition on its own, so that a partition without a leader
// delays no other. then gets the result of each partition, or all its records at once if an earlier
// append to it is in flight, or it rests. SendParts returns false, and does nothing, if all records
// belong to the partition with the claim's number, as they do unless partitions are being added, or
// if the partitions are not known now.
func (s *Senders) SendParts(topic string, records []wire.RawRecord, then func(SendResult)) bool {
	ctx, cancel := context.WithTimeout(s.ctx, awaitTime)
	defer cancel()
	parts, err := s.opts.group(ctx, topic, records)
	if _, own := parts[s.opts.Claim.Partition]; err != nil || own && len(parts) == 1 && !s.split[topic] {
		return false
	}
	s.split[topic] = true // from now on, so that the partition with the claim's number delays no other either
	for p, part := range parts {
		for i := range part {
			part[i].Body = bytes.Clone(part[i].Body)
		}
		t := s.sender(topic+"/"+strconv.Itoa(p), topic, allTo(p))
		if wait, ok := s.send(t, part, then); !ok {
			then(SendResult{Topic: topic, Left: part, Pause: wait})
		}
	}
	return true
}

func newTopicSender(ctx context.Context, o *OutOptions, topic string) *topicSender {
	return &topicSender{appender: appender{opts: o, claimCtx: ctx, appendFuncs: map[int]wire.AppendFunc{}}, sent: SendResult{Topic: topic}}
}

// ready reports whether an append may begin, or after how long to ask again.
func (t *topicSender) ready() (wait time.Duration, ok bool) {
	now := time.Now()
	switch {
	case t.busy:
		return min(max(now.Sub(t.sent.Began), minSendPause), maxSendPause), false
	case now.Before(t.retryAt):
		return t.retryAt.Sub(now), false
	}
	return 0, true
}

// Send starts to append records to a topic and returns true. The loop later receives the
// result: HandleSent calls then, whose slices are valid during that call only. If an
// earlier Send to the topic is in flight, or the topic rests, Send does nothing and
// returns false and the time to wait. The bodies of the records must not change until
// then is called.
func (s *Senders) Send(topic string, records []wire.RawRecord, then func(SendResult)) (wait time.Duration, ok bool) {
	return s.send(s.topic(topic), records, then)
}

func (s *Senders) send(t *topicSender, records []wire.RawRecord, then func(SendResult)) (wait time.Duration, ok bool) {
	if wait, ok = t.ready(); !ok {
		return wait, false
	}
	t.records, t.then = append(t.records[:0], records...), then
	s.inFlight++
	t.begin()
	go func() {
		t.append(s.ctx)
		s.Sent <- t
	}()
	return 0, true
}

// SendNow is a Send that waits for the result, MaxSendTime at most, and returns it. If an
// earlier Send to the topic is in flight, or the topic rests, all records are left.
func (s *Senders) SendNow(topic string, records []wire.RawRecord) SendResult {
	t := s.topic(topic)
	if wait, ok := t.ready(); !ok {
		return SendResult{Topic: topic, Left: records, Pause: wait}
	}
	t.records = records
	t.begin()
	t.append(s.ctx)
	s.finish(t)
	sent := t.sent
	t.records, t.sent = nil, SendResult{Topic: topic}
	return sent
}

func (t *topicSender) begin() {
	t.busy = true
	t.sent = SendResult{Topic: t.sent.Topic, Began: time.Now(), Acked: t.sent.Acked[:0]}
	t.pulse.Beat()
}

func (t *topicSender) append(claimCtx context.Context) {
	ctx, cancel := context.WithTimeout(claimCtx, SendTime)
	defer cancel()
	t.try(ctx, t.sent.Topic, t.records, &t.sent)
}

// finish updates the state of a topic after an append.
func (s *Senders) finish(t *topicSender) {
	t.busy = false
	for _, r := range t.sent.refusals {
		t.onRefused(r)
	}
	if len(t.sent.Left) == 0 {
		t.slow, t.failing, t.pause = false, time.Time{}, 0
		return
	}
	if t.failing.IsZero() {
		t.failing = t.sent.Began
	}
	t.pause = min(max(2*t.pause, minSendPause), maxSendPause)
	t.retryAt = time.Now().Add(t.pause)
	t.sent.Pause = t.pause
	if s.ctx.Err() == nil {
		s.opts.Logger.Warn("append failed, will retry", "to", t.sent.Topic, "records", len(t.sent.Left), "failing_since", t.failing)
	}
}

// HandleSent handles an append that was received from Sent, and calls its then.
func (s *Senders) HandleSent(t *topicSender) {
	s.inFlight--
	s.finish(t)
	t.then(t.sent)
	clear(t.records) // so that the bodies can be freed
	clear(t.sent.Acked)
}

// Await waits up to 100 ms for the appends in flight, except those to topics that were
// slow the last time.
func (s *Senders) Await() {
	var timer *time.Timer
	for s.hasAwaited() {
		if timer == nil {
			timer = time.NewTimer(awaitTime)
			defer timer.Stop()
		}
		select {
		case t := <-s.Sent:
			s.HandleSent(t)
		case <-s.ctx.Done():
			return
		case <-timer.C:
			for _, t := range s.topics {
				t.slow = t.slow || t.busy
			}
		}
	}
}

func (s *Senders) hasAwaited() bool {
	for _, t := range s.topics {
		if t.busy && !t.slow {
			return true
		}
	}
	return false
}

// WaitSent waits for the appends in flight, which end soon after the claim has.
func (s *Senders) WaitSent() {
	for s.inFlight > 0 {
		s.HandleSent(<-s.Sent)
	}
}

// Failing reports whether the last append to a topic left records.
func (s *Senders) Failing(topic string) bool {
	t := s.topics[topic]
	return t != nil && !t.failing.IsZero()
}

// FailingSince returns since when a topic has not accepted all records that were sent to it:
// the earliest such time of all topics, or zero if there is none.
func (s *Senders) FailingSince() (since time.Time) {
	for _, t := range s.topics {
		if !t.busy && time.Since(t.retryAt) > time.Second { // the loop has no more records for the topic, or it would have sent them again
			t.failing = time.Time{}
		}
		if !t.failing.IsZero() && (since.IsZero() || t.failing.Before(since)) {
			since = t.failing
		}
	}
	return since
}

// Hangs reports whether an append in flight shows no sign of life, although each attempt
// has a deadline.
func (s *Senders) Hangs() bool {
	for _, t := range s.topics {
		if t.hangs() {
			return true
		}
	}
	return false
}

func (t *topicSender) hangs() bool { return t.busy && t.pulse.Silent() > StuckAfter }
