package partition

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/wire"
)

// awaitTime is how long Await waits for an append. Nearly all answers arrive within it, and their
// records then need no other iteration.
const awaitTime = 100 * time.Millisecond

// flight is an append of the loop, or a look-up, that has not ended.
type flight struct {
	sender *send.Sender
	began  time.Time
}

// newSenders returns the Senders of a loop: one for the records of the handler, and one for dead
// letters. The appends of the latter have no time limit: nothing waits for
// them but their offsets, and an append that is given up may leave a duplicate.
func newSenders(l *Loop) (sender, patient *send.Sender) {
	group := func(ctx context.Context, topic string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
		return l.stage.Log.GroupForClaim(ctx, l.Claim, topic, records)
	}
	o := send.Options{Producers: l.stage.Log, Group: group, FinishTime: retry.FinishTime, Repeated: l.stage.Metrics.Repeated, Logger: l.Logger}
	return send.New(o), send.New(o)
}

// Send appends records to a topic beside the loop, each partition on its own. The loop calls then
// with the result of each partition, or with all records at once if nothing was tried: because the
// partitions cannot be looked up, or a partition rests, or an earlier append to it is in flight. A
// record that Kafka refuses for good becomes a dead letter. The bodies of the records must not
// change until then is called. Records that are acked are done.
func (l *Loop) Send(topic string, records []wire.RawRecord, then func(send.Result)) {
	l.send(l.sender, topic, slices.Clone(records), l.marksDone(then))
}

// marksDone returns a function that marks the acked records of a result as done, makes dead letters of the
// refused ones, and calls then.
func (l *Loop) marksDone(then func(send.Result)) func(send.Result) {
	return func(r send.Result) {
		for _, acked := range r.Acked {
			l.committer.DoneAll(acked.Records)
		}
		for _, refused := range r.Refused {
			l.DeadLetterRaw(refused.Record, CauseRefused, refused.Err.Error())
		}
		then(r)
	}
}

// send looks up the partitions of the records, and sends to each.
func (l *Loop) send(s *send.Sender, topic string, records []wire.RawRecord, then func(send.Result)) {
	var parts map[int][]wire.RawRecord
	l.start(flight{s, time.Now()}, send.Destination{Topic: topic, Partition: send.AllPartitions}, records, func(ctx context.Context) (failed send.Result) {
		parts, failed = s.Group(ctx, topic, records)
		return failed
	}, func(failed send.Result) {
		if parts == nil {
			then(failed)
		}
		for p, part := range parts {
			// The loop may have been busy since the look-up.
			l.sendPart(flight{s, time.Now()}, send.Destination{Topic: topic, Partition: p}, part, then) //mutant:leaderless-holds-topic
		}
	})
}

// sendPart sends records to one partition.
func (l *Loop) sendPart(f flight, to send.Destination, records []wire.RawRecord, then func(send.Result)) {
	l.start(f, to, records, func(ctx context.Context) send.Result {
		return f.sender.Append(ctx, to, records)
	}, then)
}

// start runs work in another goroutine, unless work for the same destination is in flight.
func (l *Loop) start(f flight, to send.Destination, records []wire.RawRecord, work func(context.Context) send.Result, then func(send.Result)) {
	if other, busy := l.flights[to]; busy {
		then(send.Result{Topic: to.Topic, Left: records, Pause: min(max(time.Since(other.began), send.MinRest), send.MaxRest)})
		return
	}
	l.flights[to] = f
	var r send.Result
	l.Go(func(context.Context) {
		ctx, cancel := l.limit(f)
		defer cancel()
		r = work(ctx)
	}, func() {
		delete(l.flights, to)
		then(r)
	})
}

// limit returns the context of a flight, with its time limit.
func (l *Loop) limit(f flight) (context.Context, context.CancelFunc) {
	if f.sender == l.patient { //mutant:append-without-limit
		return l.Ctx, func() {}
	}
	return context.WithDeadline(l.Ctx, f.began.Add(send.MaxTime))
}

// SendNow is Send, but waits for the result, send.MaxTime at most, if all records belong to the
// partition with the claim's number. They do unless partitions are being added. Otherwise a partition
// without a leader must not delay the others, and SendNow sends copies of the records. The bodies of
// records that are left are copies, too. For one topic use either Send or SendNow.
func (l *Loop) SendNow(topic string, records []wire.RawRecord, then func(send.Result)) {
	then = l.marksDone(then)
	f := flight{l.sender, time.Now()}
	ctx, cancel := l.limit(f)
	defer cancel()
	parts, r := l.sender.Group(ctx, topic, records)
	own := parts[l.Claim.Partition]
	if len(own) == len(records) && !l.split[topic] { //mutant:leaderless-delays-others
		r = l.sender.Append(ctx, send.Destination{Topic: topic, Partition: l.Claim.Partition}, own) //mutant:close-topic-unlimited
	} else if parts != nil {
		l.split[topic] = true // from now on, so that the partition with the claim's number delays no other either
		for p, part := range parts {
			l.sendPart(f, send.Destination{Topic: topic, Partition: p}, copied(part), then)
		}
		return
	}
	r.Left = copied(r.Left)
	then(r)
}

// copied returns the records with bodies of their own.
func copied(records []wire.RawRecord) []wire.RawRecord {
	records = slices.Clone(records)
	for i := range records {
		records[i].Body = bytes.Clone(records[i].Body)
	}
	return records
}

// Await waits up to 100 ms for the appends of Send, except those to topics that fail.
func (l *Loop) Await() {
	for {
		wait := time.Duration(0)
		for to, f := range l.flights {
			if f.sender == l.sender && !l.Failing(to.Topic) {
				wait = max(wait, awaitTime-time.Since(f.began))
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

// Failing reports whether the last append to a partition of the topic left records.
func (l *Loop) Failing(topic string) bool {
	_, since := l.sender.Resting(topic)
	return !since.IsZero()
}

// FailingSince returns since when a topic has not accepted all records of Send: the earliest such
// time of all topics, or zero if there is none.
func (l *Loop) FailingSince() time.Time { return l.sender.FailingSince() }

// appendHangs reports whether an append in flight has long exceeded its time limit.
func (l *Loop) appendHangs() bool {
	for _, f := range l.flights {
		if f.sender == l.sender && time.Since(f.began) > send.MaxTime+stuckAfter {
			return true
		}
	}
	return false
}
