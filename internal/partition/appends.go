package partition

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// awaitTime is how long Await waits for an append. Nearly all answers arrive within it, and their
// records then need no other iteration.
const awaitTime = 100 * time.Millisecond

// flight is an append of the loop that has not ended.
type flight struct {
	topic string
	began time.Time
}

// Send appends records to a topic beside the loop, to any of its partitions. The loop calls then with the result. Records that are acked
// are done; a record that Kafka refuses for good becomes a dead letter. The records and their bodies must not change until then is called.
func (l *Loop) Send(topic string, records []wire.RawRecord, then func(send.Result)) {
	l.sendWithin(send.MaxTime, topic, records, then)
}

// SendUntilDue is Send. But when the first of the records is due, by a clock that shows now, those come back that are not in flight.
func (l *Loop) SendUntilDue(now time.Time, topic string, records []wire.RawRecord, then func(send.Result)) {
	first := slices.MinFunc(records, func(a, b wire.RawRecord) int { return cmp.Compare(a.DueAt, b.DueAt) }).DueAt
	l.sendWithin(time.UnixMilli(first).Sub(now), topic, records, then) //mutant:hop-to-failing
}

func (l *Loop) sendWithin(d time.Duration, topic string, records []wire.RawRecord, then func(send.Result)) {
	l.send(d, topic, records, func(r send.Result) {
		for _, acked := range r.Acked {
			l.committer.DoneAll(acked.Records)
		}
		for _, refused := range r.Refused {
			l.DeadLetterRaw(refused.Record, CauseRefused, refused.Err.Error())
		}
		then(r)
	})
}

// send appends records, and lets the loop call then.
func (l *Loop) send(within time.Duration, topic string, records []wire.RawRecord, then func(send.Result)) {
	f := &flight{topic, time.Now()}
	l.flights[f] = true
	l.running++
	ctx, cancel := context.WithTimeout(l.Ctx, within)
	l.stage.Log.Send(ctx, topic, records, func(r send.Result) {
		cancel()
		l.results <- func() {
			delete(l.flights, f)
			l.stage.Metrics.Repeated(r.Repeated)
			if delete(l.left, topic); len(r.Left) > 0 {
				l.left[topic] = time.Now().Add(r.Pause + 2*maxSleep)
			}
			then(r)
		}
	})
}

// Await waits up to 100 ms for the appends of Send, except those to topics that fail.
func (l *Loop) Await() {
	for {
		wait := time.Duration(0)
		for f := range l.flights {
			if left := awaitTime - time.Since(f.began); left > wait && !l.Failing(f.topic) {
				wait = left
			}
		}
		if wait <= 0 {
			return
		}
		select {
		case then := <-l.results:
			l.handleResult(then)
		case <-l.Ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Failing reports whether a topic has accepted nothing since a request to it failed.
func (l *Loop) Failing(topic string) bool {
	since, _ := l.stage.Log.Failing(topic)
	return !since.IsZero()
}

// Accepting is send.Accepting.
func (l *Loop) Accepting(buckets orderclose.Buckets, topic string) string {
	return send.Accepting(l.stage.Log, buckets, topic)
}

// FailingSince returns since when a topic fails that has not accepted all records of the loop: the earliest such
// time of all topics, or zero if there is none.
func (l *Loop) FailingSince() (since time.Time) {
	look := func(topic string) {
		if failing, _ := l.stage.Log.Failing(topic); since.IsZero() || !failing.IsZero() && failing.Before(since) {
			since = failing
		}
	}
	for topic, until := range l.left {
		if time.Now().Before(until) { // later they have gone elsewhere
			look(topic)
		}
	}
	for f := range l.flights {
		look(f.topic)
	}
	return since
}

// appendHangs reports whether an append in flight has long exceeded its time limit.
func (l *Loop) appendHangs() bool {
	for f := range l.flights {
		if time.Since(f.began) > send.MaxTime+stuckAfter {
			return true
		}
	}
	return false
}
