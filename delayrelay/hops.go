package delayrelay

import (
	"time"

	"orderclose/internal/partition"
	"orderclose/internal/wire"
)

// hop starts to append records to a delay topic. If the topic is busy or rests after a
// failure, the records go back into the window.
func (l *loop) hop(topic string, records []wire.RawRecord) {
	if l.out.Failing(topic) {
		records = l.putBackNearlyDue(records)
	}
	if len(records) == 0 {
		return
	}
	if wait, ok := l.out.Send(topic, records, l.handleHops); !ok {
		l.putBack(records, wait)
	}
}

// handleHops processes the result of hops. Records that were not accepted go back into
// the window. They go to the close topic if they are due before the delay topic works
// again.
func (l *loop) handleHops(sent partition.SendResult) {
	for _, acked := range sent.Acked {
		l.Metrics.Hopped(l.claim.Topic, sent.Topic, len(acked.Records))
		if sent.Topic == l.claim.Topic && !acked.At.IsZero() { // a hop into its own topic goes to this partition
			l.clock.observeLeader(acked.At, l.brokerTime(sent.Began), l.brokerTime(acked.Answered))
		}
		l.committer.Arrived(acked.Records)
	}
	l.putBack(sent.Left, sent.Pause)
}

// replay starts to append due records to the replay topic. It does not wait, because the
// replay topic may accept nothing while the close topic does.
func (l *loop) replay(topic string, records []wire.RawRecord) {
	if len(records) == 0 {
		return
	}
	wait, ok := l.out.Send(topic, records, func(sent partition.SendResult) {
		l.countForwarded(sent)
		l.putBack(sent.Left, sent.Pause)
	})
	if !ok {
		l.putBack(records, wait)
	}
}

// putBackNearlyDue puts the records that would be due before an append to a failing topic
// is given up back into the window, and returns the others.
func (l *loop) putBackNearlyDue(records []wire.RawRecord) (others []wire.RawRecord) {
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

// putBack puts records into the window again, to leave after a pause, or when they become
// due if that is sooner. Records of a log that was replaced meanwhile are dropped: the
// sweep closes their orders.
func (l *loop) putBack(records []wire.RawRecord, pause time.Duration) {
	if l.ctx.Err() != nil {
		return
	}
	now := l.Now()
	retryAt := now.Add(pause).UnixMilli() + 1 // rounded up, or the loop would spin until the pause is over
	for _, r := range records {
		if !l.committer.Current(r.Generation) {
			continue
		}
		release := retryAt
		if r.DueAt > now.UnixMilli() {
			release = min(retryAt, r.DueAt)
		}
		l.window.push(waiting{record: r, release: release})
	}
}

// overdueSince is since when records wait for a topic that does not accept them, by the
// brokers' clock; zero if none do.
func (l *loop) overdueSince() time.Time {
	since := l.out.FailingSince()
	if since.IsZero() {
		return since
	}
	return l.brokerTime(since)
}

// brokerTime converts a moment of the recent past to the brokers' clock.
func (l *loop) brokerTime(at time.Time) time.Time { return l.Now().Add(-time.Since(at)) }
