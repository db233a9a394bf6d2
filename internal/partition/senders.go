package partition

import (
	"context"
	"time"

	"orderclose"
)

const (
	// sendAwait is how long Await waits for the answers of a turn: nearly all come within
	// it, and their records need not wait for another turn.
	sendAwait = 100 * time.Millisecond
	// SendTime is how long an append to one topic is tried before what is left comes back
	// to the loop. With LingerTime it takes 5 s at most.
	SendTime = 3 * time.Second
	// MaxSendTime is the longest that records are away from the loop.
	MaxSendTime = SendTime + LingerTime
	// Pauses of a topic that did not accept everything in time.
	minSendPause, maxSendPause = 50 * time.Millisecond, 4 * time.Second
)

// Senders append the records of a claim beside its loop, so that a topic that accepts
// nothing holds up nothing that goes elsewhere. Each topic has one goroutine at most, and
// a limit of time; what was not accepted comes back to the loop. A topic that did not
// accept everything rests for a while. Senders belong to the claim's loop:
//
//	wait, ok := s.Send(topic, records, then) // any time
//	s.Await()                                // after the last Send of a turn
//	select { case x := <-s.Sent: s.TookSent(x) }
//	s.WaitSent()                             // after ctx has ended, before returning
type Senders struct {
	Sent chan *sending // what is under way no more

	o     *OutOptions
	ctx   context.Context
	bury  func(refused) // makes a dead letter
	to    map[string]*sending
	under int // how many are under way
}

// sending is the way of a claim's records to one topic.
type sending struct {
	appender
	records []orderclose.RawRecord // under way
	then    func(SendResult)
	refused func(refused)
	sent    SendResult
	busy    bool
	slow    bool          // its answer is not waited for
	failing time.Time     // since when something is left each time; zero if that is not so
	pause   time.Duration // the last one
	resume  time.Time     // nothing is begun before
}

func newSenders(ctx context.Context, o *OutOptions, bury func(refused)) *Senders {
	return &Senders{Sent: make(chan *sending), o: o, ctx: ctx, bury: bury, to: map[string]*sending{}}
}

func (s *Senders) topic(topic string) *sending {
	t := s.to[topic]
	if t == nil {
		t = newSending(s.ctx, s.o, topic)
		t.refused = s.bury
		t.spread = func(ctx context.Context, topic string, records []orderclose.RawRecord) (map[int][]orderclose.RawRecord, error) {
			return s.o.Log.Spread(ctx, s.o.Claim, topic, records)
		}
		s.to[topic] = t
	}
	return t
}

func newSending(ctx context.Context, o *OutOptions, topic string) *sending {
	return &sending{appender: appender{o: o, claim: ctx, pipes: map[int]orderclose.AppendFunc{}}, sent: SendResult{Topic: topic}}
}

// ready reports whether an append may begin, and otherwise after how long to ask again.
func (t *sending) ready() (wait time.Duration, ok bool) {
	now := time.Now()
	switch {
	case t.busy:
		return min(max(now.Sub(t.sent.Began), minSendPause), maxSendPause), false
	case now.Before(t.resume):
		return t.resume.Sub(now), false
	}
	return 0, true
}

// Send begins to append records to a topic and returns true. Later then is called in the
// loop with the outcome; the slices that it is given are for that call only. While an
// earlier Send to the topic is under way, or the topic rests, Send does nothing and
// returns false and after how long to try again. The bodies of the records must not
// change meanwhile.
func (s *Senders) Send(topic string, records []orderclose.RawRecord, then func(SendResult)) (wait time.Duration, ok bool) {
	return s.send(s.topic(topic), records, then)
}

func (s *Senders) send(t *sending, records []orderclose.RawRecord, then func(SendResult)) (wait time.Duration, ok bool) {
	if wait, ok = t.ready(); !ok {
		return wait, false
	}
	t.records, t.then = append(t.records[:0], records...), then
	s.under++
	t.begin()
	go func() {
		t.append(s.ctx)
		s.Sent <- t
	}()
	return 0, true
}

// SendNow is Send that waits for the outcome, MaxSendTime at most, and returns it. If the
// topic rests everything is left.
func (s *Senders) SendNow(topic string, records []orderclose.RawRecord) SendResult {
	t := s.topic(topic)
	if wait, ok := t.ready(); !ok {
		return SendResult{Topic: topic, Left: records, Pause: wait}
	}
	t.records = records
	t.begin()
	t.append(s.ctx)
	s.note(t)
	sent := t.sent
	t.records, t.sent = nil, SendResult{Topic: topic}
	return sent
}

func (t *sending) begin() {
	t.busy = true
	t.sent = SendResult{Topic: t.sent.Topic, Began: time.Now(), Acked: t.sent.Acked[:0]}
	t.pulse.Beat()
}

func (t *sending) append(claim context.Context) {
	ctx, cancel := context.WithTimeout(claim, SendTime)
	defer cancel()
	t.try(ctx, t.sent.Topic, t.records, &t.sent)
}

// note notes how an append fared.
func (s *Senders) note(t *sending) {
	t.busy = false
	for _, r := range t.sent.refused {
		t.refused(r)
	}
	if len(t.sent.Left) == 0 {
		t.slow, t.failing, t.pause = false, time.Time{}, 0
		return
	}
	if t.failing.IsZero() {
		t.failing = t.sent.Began
	}
	t.pause = min(max(2*t.pause, minSendPause), maxSendPause)
	t.resume = time.Now().Add(t.pause)
	t.sent.Pause = t.pause
	if s.ctx.Err() == nil {
		s.o.Logger.Warn("append failed, will retry", "to", t.sent.Topic, "records", len(t.sent.Left), "failing_since", t.failing)
	}
}

// TookSent notes what was received from Sent, and calls its then.
func (s *Senders) TookSent(t *sending) {
	s.under--
	s.note(t)
	t.then(t.sent)
	clear(t.records) // let go of their bytes
	clear(t.sent.Acked)
}

// Await waits a moment for what is under way, but not for topics that were slow the last
// time.
func (s *Senders) Await() {
	var timer *time.Timer
	for s.awaited() {
		if timer == nil {
			timer = time.NewTimer(sendAwait)
			defer timer.Stop()
		}
		select {
		case t := <-s.Sent:
			s.TookSent(t)
		case <-s.ctx.Done():
			return
		case <-timer.C:
			for _, t := range s.to {
				t.slow = t.slow || t.busy
			}
		}
	}
}

func (s *Senders) awaited() bool {
	for _, t := range s.to {
		if t.busy && !t.slow {
			return true
		}
	}
	return false
}

// WaitSent waits for what is under way, which ends soon after the claim has.
func (s *Senders) WaitSent() {
	for s.under > 0 {
		s.TookSent(<-s.Sent)
	}
}

// Failing reports whether the last append to a topic has left something.
func (s *Senders) Failing(topic string) bool {
	t := s.to[topic]
	return t != nil && !t.failing.IsZero()
}

// FailingSince is since when records wait for a topic that does not accept them, or zero
// if none do.
func (s *Senders) FailingSince() (since time.Time) {
	for _, t := range s.to {
		if !t.busy && time.Since(t.resume) > time.Second { // nobody has tried again: no records are left
			t.failing = time.Time{}
		}
		if !t.failing.IsZero() && (since.IsZero() || t.failing.Before(since)) {
			since = t.failing
		}
	}
	return since
}

// Hang reports whether something is under way that shows no sign of life, although each
// try has a deadline.
func (s *Senders) Hang() bool {
	for _, t := range s.to {
		if t.hangs() {
			return true
		}
	}
	return false
}

func (t *sending) hangs() bool { return t.busy && t.pulse.Silent() > StuckAfter }
