package checker

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Commit is a group's commit, as a witness saw the broker get it, whatever it
// answered.
type Commit struct {
	At        time.Time // by the broker's clock
	Group     string
	Topic     string
	Partition int32
	Offset    int64
	Metadata  string // names what was done above the offset
}

// covers says whether a commit calls an offset done.
func (c Commit) covers(offset int64) bool {
	return offset < c.Offset || slices.ContainsFunc(doneAbove(c.Offset, c.Metadata), func(r [2]int64) bool { return r[0] <= offset && offset < r[1] })
}

// doneAbove reads the runs of offsets that stand beside a commit, in a field of their own:
// "r1:" and base64 of varints, the gap before each run and its length.
func doneAbove(low int64, metadata string) (runs [][2]int64) {
	_, text, ok := strings.Cut(" "+metadata, " r1:")
	b, err := base64.RawStdEncoding.DecodeString(text)
	if !ok || err != nil {
		return nil
	}
	for at := low; len(b) > 0; {
		gap, n := binary.Uvarint(b)
		if n <= 0 || gap == 0 { // at the commit itself stands what is not done
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

// ways is when records of each key were appended where they go from a delay topic.
type ways struct {
	closed, delayed map[string][]time.Time // by key
	dead            map[string][]record
}

func (l *logs) ways(e Expect) ways {
	w := ways{map[string][]time.Time{}, map[string][]time.Time{}, map[string][]record{}}
	for topic := range e.closed() {
		for _, r := range l.records[topic] {
			w.closed[r.key] = append(w.closed[r.key], r.appended)
		}
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

// forwarded says whether a record of a delay topic was forwarded, hopped, or given up,
// by the moment; the zero time is any.
func (w ways) forwarded(r record, by time.Time) bool {
	in := func(t time.Time) bool { return !t.Before(r.appended) && (by.IsZero() || !t.After(by)) }
	return slices.ContainsFunc(w.closed[r.key], in) || w.again(r, r.appended.Add(1), by)
}

// again says whether a record was put into a delay topic again, from the moment on, or
// given up.
func (w ways) again(r record, from, by time.Time) bool {
	return slices.ContainsFunc(w.delayed[r.key], func(t time.Time) bool {
		return !t.Before(from) && (by.IsZero() || !t.After(by))
	}) || slices.ContainsFunc(w.dead[r.key], func(d record) bool {
		// Dead letters have their producer's time on a real broker, which proves nothing.
		return !d.brokerTime || !d.appended.Before(r.appended) && (by.IsZero() || !d.appended.After(by))
	})
}

// judgeCommits: whatever a commit called done was done by then, whoever was killed
// afterwards.
func (v *Verdict) judgeCommits(db *tables, l *logs, e Expect) {
	type place struct {
		group, topic string
		partition    int32
	}
	w := l.ways(e)
	by := map[place][]Commit{}
	for _, c := range e.Commits {
		p := place{c.Group, c.Topic, c.Partition}
		by[p] = append(by[p], c)
	}
	var tooSoon []string
	for p, commits := range by {
		_, delay := e.Delays[p.topic]
		_, closing := e.closed()[p.topic]
		if !delay && !(closing && e.OneClock) {
			continue
		}
		slices.SortFunc(commits, func(a, b Commit) int { return a.At.Compare(b.At) })
		for _, r := range l.records[p.topic] {
			if r.partition != p.partition {
				continue
			}
			// A commit before the append is of another topic of that name.
			i := slices.IndexFunc(commits, func(c Commit) bool { return !c.At.Before(r.appended) && c.covers(r.offset) })
			if i < 0 {
				continue
			}
			if at := commits[i].At; delay && !w.forwarded(r, at) || closing && !settled(db, w, r, at) {
				tooSoon = append(tooSoon, fmt.Sprintf("%s at %s/%d/%d", r.key, p.topic, r.partition, r.offset))
			}
		}
	}
	if len(tooSoon) > 0 && !e.Forgotten {
		v.blame("%d records were committed before they were done, such as %v", len(tooSoon), some(tooSoon))
	}
}

// settled says whether a record of the close topic was done with by the moment: its
// order had come to its end, or was to be tried again, or was given up.
func settled(db *tables, w ways, r record, by time.Time) bool {
	o, known := db.orders[r.key]
	switch {
	case w.again(r, r.appended, by): // in the same millisecond, in a bubble
		return true
	case !known || o.status == unpaid:
		return false
	case o.status == closed:
		return !o.closedAt.After(by)
	}
	return true // paid, cancelled: nobody noted when
}

// judgeRelayed: where relays ran, nothing stays in a delay topic that was to leave.
func (v *Verdict) judgeRelayed(l *logs, e Expect) {
	if e.RelayedUntil.IsZero() || e.Forgotten {
		return
	}
	w := l.ways(e)
	var stays []string
	for topic := range e.Delays {
		for _, r := range l.records[topic] {
			leaves := r.appended // what cannot be read leaves at once
			if r.hasDue {
				leaves = r.due
			}
			if leaves.Before(e.RelayedUntil) && r.appended.Before(e.RelayedUntil) && !w.forwarded(r, time.Time{}) {
				stays = append(stays, fmt.Sprintf("%s at %s/%d/%d", r.key, topic, r.partition, r.offset))
			}
		}
	}
	if len(stays) > 0 {
		v.blame("%d records should have left their delay topic and went nowhere, such as %v", len(stays), some(stays))
	}
}

// judgeStopped: after an orderly stop nothing is repeated: what was acked is
// committed. Orders that were published twice are left out, as one record may have
// gone on and the other not.
func (v *Verdict) judgeStopped(db *tables, l *logs, e Expect) {
	if !e.Stopped {
		return
	}
	times := map[string]int{}
	for _, id := range e.Published {
		times[id]++
	}
	w := l.ways(e)
	var open []string
	look := func(topic, group string, done func(r record) bool) {
		for _, r := range l.records[topic] {
			c := Commit{Offset: l.committed[group][r.partition], Metadata: l.beside[group][r.partition]}
			if times[r.key] == 1 && done(r) && !c.covers(r.offset) {
				open = append(open, fmt.Sprintf("%s at %s/%d/%d", r.key, topic, r.partition, r.offset))
			}
		}
	}
	for topic, group := range e.Delays {
		look(topic, group, func(r record) bool { return w.forwarded(r, time.Time{}) })
	}
	look(e.CloseTopic, e.CloserGroup, func(r record) bool { return db.orders[r.key].status == closed })
	if len(open) > 0 {
		v.blame("%d records were acked and not committed after an orderly stop, such as %v", len(open), some(open))
	}
}
