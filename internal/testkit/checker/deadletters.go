package checker

import (
	"fmt"
	"strconv"
)

// deadLetterHeaders are the headers of a dead letter that give the cause and the coordinates of its record. The first three must not be empty.
var deadLetterHeaders = []string{"cause", "detail", "stage", "source-topic", "source-partition", "source-offset"}

// checkDeadLetterHeaders: each dead letter has the headers, and its coordinates lie within a log.
func (v *Verdict) checkDeadLetterHeaders(l *logs, e Expect) {
	for _, r := range l.records[e.DeadLetterTopic] {
		if r.resolution {
			continue
		}
		where := fmt.Sprintf("%s/%d/%d", e.DeadLetterTopic, r.partition, r.offset)
		for _, h := range deadLetterHeaders {
			if _, ok := r.headers[h]; !ok {
				v.violation("the dead letter %s has no %s", where, h)
			}
		}
		for _, h := range deadLetterHeaders[:3] {
			if text, ok := r.headers[h]; ok && text == "" {
				v.violation("the dead letter %s has an empty %s", where, h)
			}
		}
		topic := r.headers["source-topic"]
		ends, known := l.ends[topic]
		p, err1 := strconv.ParseInt(r.headers["source-partition"], 10, 32)
		offset, err2 := strconv.ParseInt(r.headers["source-offset"], 10, 64)
		end, there := ends[int32(p)]
		if known && !e.RecordsDeleted && (err1 != nil || err2 != nil || !there || offset < 0 || offset >= end) {
			v.violation("the dead letter %s is of %s/%s/%s, where no record ever was", where, topic, r.headers["source-partition"], r.headers["source-offset"])
		}
	}
}
