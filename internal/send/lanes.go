package send

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orderclose/orderclose/internal/wire"
)

const (
	// minRest and maxRest bound how long a partition rests after a request that failed. The time doubles with each further one.
	minRest, maxRest = 50 * time.Millisecond, 4 * time.Second
	// maxLookUpRest is maxRest for the look-up of a topic, which is cheaper.
	maxLookUpRest = time.Second
	// lookUpEvery is the time between two look-ups of a topic. A number of partitions counts for keepFor if it cannot be read again.
	lookUpEvery, keepFor = time.Second, MaxTime
	// minLate and maxLate bound the time after which a request is late, so that another lane works too.
	minLate, maxLate = 2 * time.Millisecond, 100 * time.Millisecond
	// dropEvery is the time between two looks for calls that have ended among those that wait.
	dropEvery = 10 * time.Millisecond
	// logEvery is the time between two log lines about a topic of which partitions fail.
	logEvery = 10 * time.Second
	// probeRecords is how many records the first request of a lane has that failed before: as many may be written twice.
	probeRecords = 100
)

// topic has what waits for a topic. Appender.mu protects it.
type topic struct {
	name  string
	any   queue // records that may go to any partition
	lanes []*lane
	last  int           // the lane that began last
	usual time.Duration // of a request
	since time.Time     // the begin of the first request or look-up that failed after the last ack; zero: none
	drop  bool          // calls of which records may wait have ended

	partitions int
	looking    bool      // a look-up runs
	lookedUp   time.Time // the last success; zero: none
	lookUpErr  error     // of the last look-up
	lookUpRest rest
	logged     time.Time // when a failure was logged last

	timer  *time.Timer // calls next
	wakeAt time.Time   // when it does; zero: not set
}

func newTopic(name string) *topic {
	return &topic{name: name, usual: minLate, last: rand.IntN(1 << 16)} // processes begin with different partitions
}

// lane is a partition.
type lane struct {
	number  int
	produce wire.AppendFunc
	fixed   queue // records that go to this partition alone
	busy    bool  // a request is in flight
	began   time.Time
	twice   bool      // the request in flight may have been written twice
	err     error     // of the last request
	failing time.Time // the begin of the first request that failed after the last ack; zero: none
	rest
}

// rest is the pause after a failure.
type rest struct {
	length time.Duration
	until  time.Time
}

// begin begins a rest, twice as long as the last one. Its end varies, so that partitions that failed together are not tried together.
func (r *rest) begin(most time.Duration) {
	r.length = min(max(2*r.length, minRest), most)
	r.until = time.Now().Add(r.length - rand.N(r.length/4)) //mutant:failing-topic-retried
}

func (r *rest) resting(now time.Time) bool { return now.Before(r.until) }

// part is records of a call that go to one partition by one request.
type part struct {
	*entry
	records []wire.RawRecord
}

func (p part) size() (n int) {
	for i := range p.records {
		n += p.records[i].Size()
	}
	return n
}

// queue holds parts, the first one first.
type queue struct {
	parts []part
	bytes int
}

// add queues the records of a call as parts that each fit into a request.
func (q *queue) add(e *entry, records []wire.RawRecord) {
	for len(records) > 0 {
		n := wire.Fitting(records)
		p := part{e, records[:n:n]}
		q.parts, q.bytes, records = append(q.parts, p), q.bytes+p.size(), records[n:]
		e.open++
	}
}

// putBack queues parts before all others.
func (q *queue) putBack(parts ...part) {
	for _, p := range parts {
		q.bytes += p.size()
	}
	q.parts = slices.Insert(q.parts, 0, parts...)
}

// take removes and returns what fits into one request, of at most some records.
func (q *queue) take(most int) (parts []part) {
	for size := 0; len(q.parts) > 0 && most > 0; {
		p := q.parts[0]
		if size += p.size(); size > wire.MaxAppendBytes && len(parts) > 0 {
			break
		}
		q.bytes -= p.size()
		q.parts[0] = part{} // so that it can be freed
		q.parts = q.parts[1:]
		if len(p.records) > most {
			p.open++
			q.putBack(part{p.entry, p.records[most:]})
			p.records = p.records[:most:most]
		}
		most -= len(p.records)
		parts = append(parts, p)
	}
	return parts
}

// known reports whether the number of partitions is known.
func (t *topic) known() bool {
	return t.partitions > 0 && (t.lookUpErr == nil || time.Since(t.lookedUp) < keepFor)
}

// lane returns the lane of a partition.
func (t *topic) lane(number int, log Log) *lane {
	for n := len(t.lanes); n <= number; n++ {
		l := &lane{number: n}
		l.produce = log.Idempotent(func(int) { l.twice = true })
		t.lanes = append(t.lanes, l)
	}
	return t.lanes[number]
}

// lookUp asks for the number of partitions, unless it has just failed.
func (a *Appender) lookUp(t *topic) {
	a.mu.Lock()
	began := time.Now()
	resting := t.lookUpErr != nil && t.lookUpRest.resting(began)
	a.mu.Unlock()
	var n int
	var err error
	if !resting {
		ctx, cancel := context.WithTimeout(context.Background(), MaxTime)
		n, err = a.o.Log.Partitions(ctx, t.name)
		cancel()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch t.looking = false; {
	case resting:
	case err == nil:
		t.partitions, t.lookedUp, t.lookUpErr, t.lookUpRest = n, time.Now(), nil, rest{}
		t.lane(n-1, a.o.Log)
	default:
		t.lookUpErr = err
		if t.lookUpRest.begin(maxLookUpRest); t.since.IsZero() {
			t.since = began
			a.o.Logger.Warn("partition lookup failed, will retry", "to", t.name, "err", err)
		}
	}
}

// next begins the requests that may begin now, and sets when to look again. The caller holds mu.
func (a *Appender) next(t *topic) {
	if t.drop { //mutant:append-after-revoke
		t.drop = false
		a.dropEnded(t)
	}
	for _, l := range t.lanes {
		if len(l.fixed.parts) > 0 && !l.busy {
			a.start(t, l, &l.fixed)
		}
	}
	for len(t.any.parts) > 0 {
		l, wait := t.pick(time.Now())
		if l == nil {
			t.wakeIn(wait, a)
			return
		}
		a.start(t, l, &t.any)
	}
}

// pick returns the lane for the next request, or the time until pick must be asked again. Records wait for a request in flight until it is
// late. They do not wait if they fill a request.
func (t *topic) pick(now time.Time) (l *lane, wait time.Duration) {
	lanes, late := t.lanes[:t.partitions], min(max(2*t.usual, minLate), maxLate)
	for _, l := range lanes {
		if age := now.Sub(l.began); l.busy && age < late && t.any.bytes < wire.MaxAppendBytes {
			return nil, late - age
		}
	}
	wait = maxRest
	for i := range lanes {
		l := lanes[(t.last+1+i)%len(lanes)]
		switch {
		case l.busy:
		case !l.resting(now):
			return l, 0
		default:
			wait = min(wait, l.until.Sub(now))
		}
	}
	return nil, wait
}

// usual returns the usual time of a request, after a request that took d. A quick request changes it by a fourth of the difference, a slow one
// by a sixteenth. So a few slow requests count as late, and other lanes work meanwhile.
func usual(last, d time.Duration) time.Duration {
	if d < last {
		return last - (last-d)/4
	}
	return last + (min(d, 2*last)-last)/16
}

// wait returns after how long a lane may accept records, by what is known; 0: one may now.
func (t *topic) wait(now time.Time) time.Duration {
	if !t.known() {
		return max(t.lookUpRest.until.Sub(now), 0)
	}
	least := maxRest
	for _, l := range t.lanes[:t.partitions] {
		least = min(least, max(l.until.Sub(now), 0))
	}
	return least
}

// wakeIn calls next after a time, or earlier. The caller holds mu.
func (t *topic) wakeIn(d time.Duration, a *Appender) {
	at := time.Now().Add(d)
	switch {
	case !t.wakeAt.IsZero() && !at.Before(t.wakeAt):
		return
	case t.timer != nil:
		t.timer.Reset(d)
	default:
		t.timer = time.AfterFunc(d, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			t.wakeAt = time.Time{}
			a.next(t)
		})
	}
	t.wakeAt = at
}

// dropEnded gives back the records of calls that have ended. The caller holds mu.
func (a *Appender) dropEnded(t *topic) {
	drop := func(q *queue) {
		q.parts = slices.DeleteFunc(q.parts, func(p part) bool {
			if p.ctx.Err() == nil {
				return false
			}
			q.bytes -= p.size()
			p.leave(p.records, errors.Join(p.result.Err, p.ctx.Err()))
			a.settle(t, p.entry)
			return true
		})
	}
	drop(&t.any)
	for _, l := range t.lanes {
		drop(&l.fixed)
	}
}
