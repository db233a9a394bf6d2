package compensator

import (
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestControlTopic_LocatesWhereReadingContinues(t *testing.T) {
	log := wire.LogID{Topic: [16]byte{1}}
	for what, c := range map[string]struct {
		topic                controlTopic
		position, first, end int64
		next                 int64
		lost                 bool
	}{
		"first start":                          {controlTopic{}, -1, 3, 9, 3, false},
		"restart":                              {controlTopic{}, 5, 3, 9, 5, false},
		"restart after a long stop":            {controlTopic{}, 2, 3, 9, 3, true},
		"restart, shorter topic":               {controlTopic{}, 10, 3, 9, 3, true},
		"next poll":                            {controlTopic{started: true, next: 7, log: log}, 5, 3, 9, 7, false},
		"commit is gone":                       {controlTopic{started: true, next: 7, log: log}, -1, 3, 9, 3, true},
		"commit is gone, noticed before":       {controlTopic{started: true, next: 7, log: log, unhandled: unhandled{lost: true, position: -1}}, -1, 3, 9, 7, false},
		"commit is gone after another loss":    {controlTopic{started: true, next: 7, log: log, unhandled: unhandled{lost: true, position: 4}}, -1, 3, 9, 3, true},
		"shorter topic, commit of another one": {controlTopic{started: true, next: 7, log: log}, 5, 0, 6, 0, true},
	} {
		topic := c.topic
		reason := topic.locate(c.position, c.first, c.end)
		expect.That(t, topic.next == c.next && (reason != "") == c.lost && topic.started,
			"%s: next %d, want %d; reason %q, lost %v", what, topic.next, c.next, reason, c.lost)
		expect.That(t, !c.lost || topic.log == (wire.LogID{}), "%s: the offset is still one of the former log", what)
	}
}

// Under the lock, a process asks whether another one has dealt with the notices.
func TestControlTopic_StillPending(t *testing.T) {
	for what, c := range map[string]struct {
		unhandled unhandled
		position  int64 // of the group, in a log of 3 records
		want      bool
	}{
		"no commit since":                   {unhandled{end: 2}, 1, true},
		"a commit after the notices":        {unhandled{end: 2}, 2, false},
		"a commit of a former, longer log":  {unhandled{end: 2}, 4, true},
		"the topic was lost, no commit":     {unhandled{lost: true, position: 1}, 1, true},
		"the topic was lost, and a commit":  {unhandled{lost: true, position: 1}, 2, false},
		"a notice in the new topic":         {unhandled{end: 3, lost: true, position: 1}, 2, true},
		"the topic was lost without commit": {unhandled{lost: true, position: -1}, -1, true},
	} {
		topic := controlTopic{kafka: &fakeControl{position: c.position, told: make([]wire.Lost, 3)}, next: 9, unhandled: c.unhandled}
		expect.Equal(t, must.Get(topic.stillUnhandled(t.Context()))(t), c.want, "%s", what)
		if read := topic.next != 9; read != (c.unhandled.lost && !c.want) {
			t.Errorf("%s: reading continues at %d", what, topic.next)
		}
	}
}
