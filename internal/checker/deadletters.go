package checker

import (
	"fmt"
	"strconv"
)

// headers of a dead letter that say why, and where its record lay.
var letterHeaders = []string{"cause", "detail", "stage", "source-topic", "source-partition", "source-offset"}

// judgeLetters: a dead letter says why, who gave it up, and where its record lay, and
// that there is such a place.
func (v *Verdict) judgeLetters(l *logs, e Expect) {
	for _, r := range l.records[e.DeadLetterTopic] {
		if r.mark {
			continue
		}
		where := fmt.Sprintf("%s/%d/%d", e.DeadLetterTopic, r.partition, r.offset)
		for _, h := range letterHeaders {
			if _, ok := r.letter[h]; !ok {
				v.blame("the dead letter %s has no %s", where, h)
			}
		}
		for _, h := range letterHeaders[:3] {
			if text, ok := r.letter[h]; ok && text == "" {
				v.blame("the dead letter %s has an empty %s", where, h)
			}
		}
		topic := r.letter["source-topic"]
		ends, known := l.ends[topic]
		p, err1 := strconv.ParseInt(r.letter["source-partition"], 10, 32)
		offset, err2 := strconv.ParseInt(r.letter["source-offset"], 10, 64)
		end, there := ends[int32(p)]
		if known && !e.Forgotten && (err1 != nil || err2 != nil || !there || offset < 0 || offset >= end) {
			v.blame("the dead letter %s is of %s/%s/%s, where nothing ever was", where, topic, r.letter["source-partition"], r.letter["source-offset"])
		}
	}
}
