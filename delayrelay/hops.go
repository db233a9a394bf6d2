package delayrelay

import (
	"time"

	"orderclose"
	"orderclose/internal/partition"
)

// hop begins to bring records to a delay topic. If the topic is busy or does not accept
// records, they are put back into the window.
func (l *loop) hop(topic string, records []orderclose.RawRecord) {
	if l.out.Failing(topic) {
		records = l.keepNearlyDue(records)
	}
	if len(records) == 0 {
		return
	}
	if wait, ok := l.out.Send(topic, records, l.hopped); !ok {
		l.putBack(records, wait)
	}
}

// hopped notes how hops fared. Those that were not accepted are put back, and go to the
// close topic if they become due before the delay topic is back.
func (l *loop) hopped(sent partition.SendResult) {
	for _, acked := range sent.Acked {
		l.Metrics.Hopped(l.claim.Topic, sent.Topic, len(acked.Records))
		if sent.Topic == l.claim.Topic && !acked.At.IsZero() { // these hops came to this very partition
			l.clock.tellLeader(acked.At, l.brokerTime(sent.Began), l.brokerTime(acked.Answered))
		}
		l.mark.Arrived(acked.Records)
	}
	l.putBack(sent.Left, sent.Pause)
}

// replay begins to bring records that are due to the replay topic, which may accept
// nothing while the close topic does.
func (l *loop) replay(topic string, records []orderclose.RawRecord) {
	if len(records) == 0 {
		return
	}
	wait, ok := l.out.Send(topic, records, func(sent partition.SendResult) {
		l.forwarded(sent)
		l.putBack(sent.Left, sent.Pause)
	})
	if !ok {
		l.putBack(records, wait)
	}
}

// keepNearlyDue puts the records back into the window that would be due before their
// append to a topic that fails is given up, and returns the others.
func (l *loop) keepNearlyDue(records []orderclose.RawRecord) (others []orderclose.RawRecord) {
	until := l.Now().Add(partition.MaxSendTime).UnixMilli()
	for _, r := range records {
		if r.DueAt <= until {
			l.window.push(waiting{record: r, release: r.DueAt})
			continue
		}
		others = append(others, r)
	}
	return others
}

// putBack has records leave after a pause, or when they are due if that is sooner and
// still to come. Records of a log that was recreated meanwhile are left to the sweep.
func (l *loop) putBack(records []orderclose.RawRecord, pause time.Duration) {
	if l.ctx.Err() != nil {
		return
	}
	now := l.Now()
	again := now.Add(pause).UnixMilli() + 1 // not before the pause is over: the loop would spin until then
	for _, r := range records {
		if !l.mark.Current(r.Generation) {
			continue
		}
		release := again
		if r.DueAt > now.UnixMilli() {
			release = min(again, r.DueAt)
		}
		l.window.push(waiting{record: r, release: release})
	}
}

// overdueSince is since when records of the window wait for a topic that does not accept
// them, by the brokers' clock, or zero if none do.
func (l *loop) overdueSince() time.Time {
	since := l.out.FailingSince()
	if since.IsZero() {
		return since
	}
	return l.brokerTime(since)
}

// brokerTime is a moment of the recent past by the brokers' clock.
func (l *loop) brokerTime(at time.Time) time.Time { return l.Now().Add(-time.Since(at)) }
