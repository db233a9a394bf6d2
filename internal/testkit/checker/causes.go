package checker

// Miss is an order that a sweep has found, and the cause by which the sweep explains why the
// pipeline did not close the order.
type Miss struct{ OrderID, Cause string }

// causeDeadLettered is the cause of an order whose record is a dead letter.
const causeDeadLettered = "dead_lettered"

// checkMisses checks that what a sweep reports of an order does not contradict the logs. The
// logs may be newer than the report. If all reports are known, each order that a sweep has
// closed must have been reported.
func (v *Verdict) checkMisses(db *tables, l *logs, e Expect) {
	if e.Misses == nil {
		return
	}
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
		if m.Cause == causeDeadLettered && !l.dead[m.OrderID] {
			v.violation("a sweep says of %s %q, and it has no dead letter", m.OrderID, m.Cause)
		}
	}
	for id, r := range db.receipts {
		if r.path == "sweep" && !reported[id] && !e.LostCommitAnswers {
			v.violation("a sweep closed %s and does not say why the pipeline had not", id)
		}
	}
}
