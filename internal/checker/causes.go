package checker

// Miss is an order that a sweep says it found, and why the pipeline had missed it,
// as its report has it.
type Miss struct{ OrderID, Cause string }

// The causes that say something of where a record is, in a sweep's words.
const (
	causeAbsent       = "absent"
	causeRelayBehind  = "relay_behind"
	causeCloserBehind = "closer_behind"
	causeLaterRelease = "later_release"
	causeRetrying     = "retrying"
	causeDeadLettered = "dead_lettered"
)

// judgeMisses: what a sweep says of an order does not contradict the logs, which may
// have come further since; and each order that was closed by a sweep has its cause,
// where all reports are there.
func (v *Verdict) judgeMisses(db *tables, l *logs, e Expect) {
	if e.Misses == nil {
		return
	}
	w := l.ways(e)
	told := map[string]bool{}
	for _, m := range e.Misses {
		told[m.OrderID] = true
		r, closed := db.receipts[m.OrderID]
		if !closed || r.path != "sweep" {
			v.blame("a sweep says that it found %s, which it did not close", m.OrderID)
			continue
		}
		if want, ok := e.Causes[m.OrderID]; ok && m.Cause != want {
			v.blame("a sweep says of %s %q, and it was %q", m.OrderID, m.Cause, want)
		}
		delayed, closes := len(w.delayed[m.OrderID]), len(w.closed[m.OrderID])
		dead := l.dead[m.OrderID]
		if before := e.OneClock && l.before(m.OrderID, r, e); !consistent(m.Cause, delayed, closes, dead, before) {
			v.blame("a sweep says of %s %q; it has %d records in delay topics, %d in close topics, dead letter: %v", m.OrderID, m.Cause, delayed, closes, dead)
		}
	}
	for id, r := range db.receipts {
		if r.path == "sweep" && !told[id] && !e.Unanswered {
			v.blame("a sweep closed %s and does not say why the pipeline had not", id)
		}
	}
}

// consistent says whether a cause can be right with so many records. before says that
// one was there when the order was closed.
func consistent(cause string, delayed, closes int, dead, before bool) bool {
	switch cause {
	case causeAbsent:
		return !before || closes > 0 || dead // of one that was there and is gone on nothing waits
	case causeRelayBehind, causeLaterRelease, causeRetrying:
		return delayed > 0
	case causeCloserBehind:
		return closes > 0
	case causeDeadLettered:
		return dead
	}
	return true // unpublished may be published by now; unknown says nothing
}

// before says whether a record of the order was in a delay topic before the order was
// closed.
func (l *logs) before(id string, r receipt, e Expect) bool {
	for topic := range e.Delays {
		for _, rec := range l.records[topic] {
			if rec.key == id && rec.appended.Before(r.closedAt) {
				return true
			}
		}
	}
	return false
}
