package checker

// Miss is an order that a sweep has found, and the cause by which the sweep explains why the
// pipeline did not close the order.
type Miss struct{ OrderID, Cause string }

// The causes that say where a record is, as sweeps report them.
const (
	causeAbsent       = "absent"
	causeAcknowledged = "acknowledged"
	causeRelayBehind  = "relay_behind"
	causeCloserBehind = "closer_behind"
	causeLaterRelease = "later_release"
	causeRetrying     = "retrying"
	causeDeadLettered = "dead_lettered"
)

// checkMisses checks that what a sweep reports of an order does not contradict the logs. The
// logs may be newer than the report. If all reports are known, each order that a sweep has
// closed must have been reported.
func (v *Verdict) checkMisses(db *tables, l *logs, e Expect) {
	if e.Misses == nil {
		return
	}
	w := l.routes(e)
	reported := map[string]bool{}
	for _, m := range e.Misses {
		reported[m.OrderID] = true
		r, closed := db.receipts[m.OrderID]
		if !closed || r.path != "sweep" {
			v.violation("a sweep says that it found %s, which it did not close", m.OrderID)
			continue
		}
		if want, ok := e.Causes[m.OrderID]; ok && m.Cause != want {
			v.violation("a sweep says of %s %q, and it was %q", m.OrderID, m.Cause, want)
		}
		delayed, closes := len(w.delayed[m.OrderID]), len(w.closed[m.OrderID])
		dead := l.dead[m.OrderID]
		if before := e.OneClock && l.before(m.OrderID, r, e); !consistent(m.Cause, delayed, closes, dead, before) {
			v.violation("a sweep says of %s %q; it has %d records in delay topics, %d in close topics, dead letter: %v", m.OrderID, m.Cause, delayed, closes, dead)
		}
	}
	for id, r := range db.receipts {
		if r.path == "sweep" && !reported[id] && !e.LostCommitAnswers {
			v.violation("a sweep closed %s and does not say why the pipeline had not", id)
		}
	}
}

// consistent reports whether a cause can be right for an order with that many records. before
// says that a record was in a delay topic before the order was closed.
func consistent(cause string, delayed, closes int, dead, before bool) bool {
	switch cause {
	case causeAbsent:
		return !before || closes > 0 || dead // the record may have left its delay topic since
	case causeRelayBehind, causeLaterRelease, causeRetrying:
		return delayed > 0
	case causeCloserBehind, causeAcknowledged:
		return closes > 0
	case causeDeadLettered:
		return dead
	}
	return true // unpublished: it may be published by now; unknown: nothing to contradict
}

// before reports whether a record of the order was in a delay topic before the order was
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
