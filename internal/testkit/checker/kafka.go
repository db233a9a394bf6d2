package checker

import (
	"fmt"
	"maps"
	"slices"
)

// checkLogs: every record below a relay's commit was forwarded, and no record was in the close topic before it was due.
func (v *Verdict) checkLogs(l *logs, e Expect) {
	var gone []string
	waiting := l.waiting(e)
	for topic, group := range e.Delays {
		for _, r := range l.records[topic] {
			if r.offset < l.commits[group][r.partition].Offset && !l.arrived[r.key] && !l.appendedAfter(r) && !waiting[r.key] {
				gone = append(gone, fmt.Sprintf("%s at %s/%d/%d", r.key, topic, r.partition, r.offset))
			}
		}
		for p, c := range l.commits[group] {
			if e.RecordsDeleted {
				break
			}
			if end := l.ends[topic][p]; c.Offset > end {
				v.violation("group %s has committed %d of %s/%d, which ends at %d", group, c.Offset, topic, p, end)
			}
		}
	}
	if !e.RecordsDeleted {
		v.Lost += v.several(gone, "%d records were committed and went nowhere, such as %v")
	}
	for key, n := range l.appends {
		if e.MaxAppends > 0 && n > e.MaxAppends {
			v.violation("order %s took %d appends to delay topics, at most %d are allowed", key, n, e.MaxAppends)
		}
	}
	var early []string
	for _, r := range l.records[e.CloseTopic] {
		if !r.brokerTime && !e.ProducerTime {
			v.violation("%s has records that the broker did not stamp", e.CloseTopic)
			break
		}
		if r.brokerTime && r.hasDue && r.appended.Before(r.due) {
			early = append(early, fmt.Sprintf("%s by %v", r.key, r.due.Sub(r.appended)))
		}
	}
	if e.ClockSkew {
		return
	}
	v.Early += v.several(early, "%d records were in the close topic before they were due, such as %v")
}

// checkCloser: for every record below the closer's commit, the order is in a final state, or waits in a delay topic again, or is a dead letter.
func (v *Verdict) checkCloser(db *tables, l *logs, e Expect) {
	var open []string
	for _, r := range l.records[e.CloseTopic] {
		o, known := db.orders[r.key]
		if !known && e.RecordsDeleted { // its dead letter may have been deleted
			continue
		}
		if r.offset < l.commits[e.CloserGroup][r.partition].Offset && (!known || o.status == unpaid) && !l.dead[r.key] && !l.appendedAfter(r) {
			open = append(open, fmt.Sprintf("%s at %d/%d", r.key, r.partition, r.offset))
		}
	}
	v.Lost += v.several(open, "%d records of "+e.CloseTopic+" were committed and not settled, such as %v")
}

// checkDeadLetterCauses: there are only dead letters with expected causes, and none says of an order that exists that it does not.
func (v *Verdict) checkDeadLetterCauses(db *tables, l *logs, e Expect) {
	for _, r := range l.records[e.DeadLetterTopic] {
		if r.resolution {
			continue
		}
		if _, exists := db.orders[r.key]; !slices.Contains(e.DeadLetters, r.cause) || exists && r.cause == "not_found" {
			v.violation("a dead letter of %q because of %q", r.key, r.cause)
		}
	}
}

// checkAdded: each order that a committed transaction has added is published at least once,
// or waits in the outbox. An order that was rolled back is neither.
func (v *Verdict) checkAdded(db *tables, l *logs, e Expect) {
	var lost, ghosts []string
	for _, id := range e.Added {
		if l.appends[id] == 0 && !l.arrived[id] && db.added[id] == 0 {
			lost = append(lost, id)
		}
	}
	if !e.RecordsDeleted {
		v.Lost += v.several(lost, "%d orders were added to the outbox and are neither there nor in any topic, such as %v")
	}
	for _, id := range e.RolledBack {
		if l.appends[id] > 0 || l.arrived[id] || db.added[id] > 0 {
			ghosts = append(ghosts, id)
		}
	}
	v.several(ghosts, "%d orders were rolled back and scheduled nevertheless, such as %v")
	if e.OutboxEmpty {
		v.several(slices.Collect(maps.Keys(db.added)), "%d orders are still in the outbox of schedules, such as %v")
	}
}

// checkPublished: in a calm run a compensator closes no published order that is in no topic, unless it has counted none as missed. One
// that is in a topic may be late, as on a busy machine, and a compensator faster; checkLogs has the records that a relay has done.
func (v *Verdict) checkPublished(db *tables, l *logs, e Expect) {
	if !e.Calm || e.Missed == 0 {
		return
	}
	var missed []string
	for _, id := range slices.Concat(e.Published, e.Added) {
		if r, ok := db.receipts[id]; ok && r.path != "pipeline" && l.appends[id] == 0 && !l.arrived[id] {
			missed = append(missed, id+" by "+r.path)
		}
	}
	v.several(missed, "the pipeline missed %d orders that were published, such as %v")
}

// countRepeated counts duplicates in the close topic. A duplicate breaks no promise, because
// delivery is at least once. A planned rebalance should cause none nevertheless.
func (v *Verdict) countRepeated(l *logs, e Expect) {
	left := map[string]int{}
	for _, id := range slices.Concat(e.Published, e.Added) {
		left[id]++
	}
	for _, r := range l.records[e.CloseTopic] {
		if left[r.key]--; left[r.key] < 0 {
			v.Repeated++
		}
	}
}
