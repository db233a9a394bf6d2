package checker

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Commit is a group's commit as an observer saw the broker receive it, whatever the broker answered.
type Commit struct {
	At        time.Time // by the broker's clock
	Group     string
	Topic     string
	Partition int32
	Offset    int64
	Metadata  string // has the offsets that are done above Offset
}

// covers reports whether a commit says that an offset is done.
func (c Commit) covers(offset int64) bool {
	return offset < c.Offset || slices.ContainsFunc(doneAbove(c.Offset, c.Metadata), func(r [2]int64) bool { return r[0] <= offset && offset < r[1] })
}

// doneAbove reads the runs of offsets from the metadata of a commit. They are in a field of
// the form "r1:" and base64 of varints: the gap before each run, and its length.
func doneAbove(low int64, metadata string) (runs [][2]int64) {
	_, text, ok := strings.Cut(" "+metadata, " r1:")
	b, err := base64.RawStdEncoding.DecodeString(text)
	if !ok || err != nil {
		return nil
	}
	for at := low; len(b) > 0; {
		gap, n := binary.Uvarint(b)
		if n <= 0 || gap == 0 { // the offset of the commit itself is never done
			return runs
		}
		length, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return runs
		}
		from := at + int64(gap)
		at, b = from+int64(length), b[n+m:]
		runs = append(runs, [2]int64{from, at})
	}
	return runs
}

// routes has the times at which records were appended to the topics that follow a delay topic, by key.
type routes struct {
	closed, delayed map[string][]time.Time
	dead            map[string][]record
}

func (l *logs) routes(e Expect) routes {
	w := routes{map[string][]time.Time{}, map[string][]time.Time{}, map[string][]record{}}
	for _, r := range l.records[e.CloseTopic] {
		w.closed[r.key] = append(w.closed[r.key], r.appended)
	}
	for topic := range e.Delays {
		for _, r := range l.records[topic] {
			w.delayed[r.key] = append(w.delayed[r.key], r.appended)
		}
	}
	for _, r := range l.records[e.DeadLetterTopic] {
		w.dead[r.key] = append(w.dead[r.key], r)
	}
	return w
}

// forwarded reports whether a record of a delay topic was forwarded, hopped or became a dead letter by the given time; a zero time means at any time.
func (w routes) forwarded(r record, by time.Time) bool {
	in := func(t time.Time) bool { return !t.Before(r.appended) && (by.IsZero() || !t.After(by)) }
	return slices.ContainsFunc(w.closed[r.key], in) || w.rescheduled(r, r.appended.Add(1), by)
}

// rescheduled reports whether a record was appended to a delay topic between from and by, or became a dead letter.
func (w routes) rescheduled(r record, from, by time.Time) bool {
	return slices.ContainsFunc(w.delayed[r.key], func(t time.Time) bool {
		return !t.Before(from) && (by.IsZero() || !t.After(by))
	}) || slices.ContainsFunc(w.dead[r.key], func(d record) bool {
		// On a real broker dead letters have timestamps of their producer, which prove nothing.
		return !d.brokerTime || !d.appended.Before(r.appended) && (by.IsZero() || !d.appended.After(by))
	})
}

// checkCommits: everything that a commit says is done was done by then, even if the process was killed afterwards.
func (v *Verdict) checkCommits(db *tables, l *logs, e Expect) {
	type groupPartition struct {
		group, topic string
		partition    int32
	}
	w := l.routes(e)
	by := map[groupPartition][]Commit{}
	for _, c := range e.Commits {
		p := groupPartition{c.Group, c.Topic, c.Partition}
		by[p] = append(by[p], c)
	}
	var tooSoon []string
	for p, commits := range by {
		_, delay := e.Delays[p.topic]
		if !delay && !(p.topic == e.CloseTopic && e.OneClock) {
			continue
		}
		slices.SortFunc(commits, func(a, b Commit) int { return a.At.Compare(b.At) })
		for _, r := range l.records[p.topic] {
			if r.partition != p.partition {
				continue
			}
			// A commit from before the append belongs to a deleted topic of the same name.
			i := slices.IndexFunc(commits, func(c Commit) bool { return !c.At.Before(r.appended) && c.covers(r.offset) })
			if i < 0 {
				continue
			}
			if at := commits[i].At; delay && !w.forwarded(r, at) || !delay && !e.Left[r.key] && !settled(db, w, r, at) {
				tooSoon = append(tooSoon, fmt.Sprintf("%s at %s/%d/%d", r.key, p.topic, r.partition, r.offset))
			}
		}
	}
	if !e.RecordsDeleted {
		v.several(tooSoon, "%d records were committed before they were done, such as %v")
	}
}

// settled reports whether a record of the close topic was done by the given time: its order
// was in a final state, or was to be retried, or was a dead letter.
func settled(db *tables, w routes, r record, by time.Time) bool {
	o, known := db.orders[r.key]
	switch {
	case w.rescheduled(r, r.appended, by): // in the simulation, in the same millisecond
		return true
	case !known || o.status == unpaid:
		return false
	case o.status == closed:
		return !o.closedAt.After(by)
	}
	return true // paid or cancelled: the time is not recorded
}

// checkRelayed: while relays ran, no record stayed in a delay topic after its release time.
func (v *Verdict) checkRelayed(l *logs, e Expect) {
	if e.RelayedUntil.IsZero() || e.RecordsDeleted {
		return
	}
	w := l.routes(e)
	var stays []string
	for topic := range e.Delays {
		for _, r := range l.records[topic] {
			leaves := r.appended // a record without a due time leaves at once
			if r.hasDue {
				leaves = r.due
			}
			if leaves.Before(e.RelayedUntil) && r.appended.Before(e.RelayedUntil) && !w.forwarded(r, time.Time{}) {
				stays = append(stays, fmt.Sprintf("%s at %s/%d/%d", r.key, topic, r.partition, r.offset))
			}
		}
	}
	v.several(stays, "%d records should have left their delay topic and went nowhere, such as %v")
}

// checkStopped: after an orderly stop nothing is repeated, because everything that was acked is committed. Orders that were published twice are left
// out: one of their records may be done and the other not.
func (v *Verdict) checkStopped(db *tables, l *logs, e Expect) {
	if !e.Stopped {
		return
	}
	times := map[string]int{}
	for _, id := range e.Published {
		times[id]++
	}
	w := l.routes(e)
	var open []string
	check := func(topic, group string, done func(r record) bool) {
		for _, r := range l.records[topic] {
			if times[r.key] == 1 && done(r) && !l.commits[group][r.partition].covers(r.offset) {
				open = append(open, fmt.Sprintf("%s at %s/%d/%d", r.key, topic, r.partition, r.offset))
			}
		}
	}
	for topic, group := range e.Delays {
		check(topic, group, func(r record) bool { return w.forwarded(r, time.Time{}) })
	}
	check(e.CloseTopic, e.CloserGroup, func(r record) bool { return db.orders[r.key].status == closed })
	v.several(open, "%d records were acked and not committed after an orderly stop, such as %v")
}
