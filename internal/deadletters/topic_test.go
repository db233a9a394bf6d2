package deadletters

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTopic_ListsThePendingDeadLettersOfTheFilter(t *testing.T) {
	log := &fakeLog{most: 2}
	log.addDeadLetter(t, 0, "a", "failed", now)
	b := log.addDeadLetter(t, 1, "b", "not_found", now)
	log.addDeadLetter(t, 0, "c", "failed", now)
	late := dead(t, "d", "failed", now)
	log.put(deadTopic, 1, late.Raw(), now)
	resolution := Resolution{Partition: b.Partition, Offset: b.Offset, How: Discarded}.Encode([]byte("b"))
	log.put(deadTopic, 1, resolution.Raw(), now)

	for what, c := range map[string]struct {
		f       Filter
		settled bool
		want    string
	}{
		"all":                {Filter{}, false, "a c d"},
		"and settled":        {Filter{}, true, "a c b d"},
		"by cause":           {Filter{Cause: "not_found"}, true, "b"},
		"by stage":           {Filter{Stage: "relay"}, true, ""},
		"by order":           {Filter{Order: "c"}, false, "c"},
		"by source":          {Filter{Source: "order-close"}, false, "a c d"},
		"by other source":    {Filter{Source: "events"}, false, ""},
		"by age":             {Filter{Since: now.Add(-time.Minute)}, false, "d"},
		"by place":           {Filter{Positions: []Position{{0, 1}, {1, 0}, {1, 2}, {1, 77}}}, true, "c b"},
		"snapshot":           {Filter{Through: []Position{{0, 0}}}, false, "a"},
		"none in the period": {Filter{Since: now.Add(time.Hour)}, false, ""},
	} {
		x := must.Get(log.topic().List(t.Context(), c.f, c.settled))(t)
		var keys []string
		for _, l := range x.Letters(Filter{}) {
			keys = append(keys, l.Key)
		}
		got := strings.Join(keys, " ")
		expect.Equal(t, got, c.want, "%s", what)
	}
	l := must.Get(log.topic().Find(t.Context(), b))(t)
	expect.That(t, l != nil && l.Resolution == Discarded && l.Source == (Source{"order-close", 1, 99}) && l.Detail == "in words" && l.Stage == "closer",
		"%+v", l)
	if l := must.Get(log.topic().Find(t.Context(), Position{1, 2}))(t); l != nil {
		t.Errorf("a resolution is shown as a dead letter: %+v", l)
	}
}

func TestRedrive_ASecondRunChangesNothing(t *testing.T) {
	log := &fakeLog{most: 3}
	for i := range 10 {
		log.addDeadLetter(t, i%2, fmt.Sprint(i), "failed", now.Add(time.Duration(i%3-1)*time.Hour))
	}
	corrupt := wire.DeadLetter(wire.Message{Topic: "order-close"}, "relay", "corrupt", "")
	log.put(deadTopic, 0, corrupt.Raw(), now)
	plan := must.Get(log.topic().MakePlan(t.Context(), redrive(Filter{})))(t)
	expect.That(t, plan.Pending == 11 && plan.Refused == 1 && plan.To[shortest] == 7 && plan.To["delay_1h"] == 3 && log.appends == 0,
		"%+v after %d appends", plan, log.appends)

	result := must.Get(log.topic().Run(t.Context(), redrive(Filter{}), nil))(t)
	diff := cmp.Diff(plan, result.Plan)
	expect.That(t, diff == "" && result.Done == 10, "done %d (-plan +done):\n%s", result.Done, diff)
	expect.That(t, log.waits <= 0, "%d fetches waited beyond the snapshot", log.waits)
	if sent := len(log.keys(shortest)) + len(log.keys("delay_1h")); sent != 10 || log.pending(t) != "map[corrupt:1]" {
		t.Errorf("sent %d, pending %v", sent, log.pending(t))
	}

	log.appends = 0
	result = must.Get(log.topic().Run(t.Context(), redrive(Filter{}), nil))(t)
	expect.That(t, result.Done == 0 && result.Refused == 1 && log.appends == 0, "a second run: %+v after %d appends", result, log.appends)
	discard := Options{Filter: Filter{Cause: "corrupt"}, How: Discarded}
	if result = must.Get(log.topic().Run(t.Context(), discard, nil))(t); result.Done != 1 || log.pending(t) != "map[]" {
		t.Errorf("%+v, pending %v", result, log.pending(t))
	}
}

func TestRedrive_HandlesOnlyTheSnapshot(t *testing.T) {
	log := &fakeLog{}
	log.addDeadLetter(t, 0, "a", "failed", now)
	log.addDeadLetter(t, 1, "b", "failed", now)
	plan := must.Get(log.topic().MakePlan(t.Context(), redrive(Filter{})))(t)
	log.addDeadLetter(t, 0, "later", "failed", now)
	result := must.Get(log.topic().Run(t.Context(), redrive(Filter{Through: plan.Through}), nil))(t)
	if result.Done != 2 || log.pending(t) != "map[failed:1]" {
		t.Errorf("%+v, pending %v", result, log.pending(t))
	}
}

func TestRedrive_ReportsMissingAndResolvedDeadLetters(t *testing.T) {
	log := &fakeLog{}
	at := log.addDeadLetter(t, 0, "a", "failed", now)
	o := redrive(Filter{Positions: []Position{at, {1, 5}}})
	result := must.Get(log.topic().Run(t.Context(), o, nil))(t)
	expect.That(t, result.Done == 1 && cmp.Equal(result.Missing, []Position{{1, 5}}) && result.Settled == nil, "%+v", result)
	result = must.Get(log.topic().Run(t.Context(), o, nil))(t)
	expect.That(t, result.Done == 0 && cmp.Equal(result.Settled, []Position{at}), "again: %+v", result)
}

// If a redrive is killed between the records and their resolutions, the resolutions are not appended.
func TestRedrive_KilledBeforeTheMarksOnlyRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		log.addDeadLetter(t, 0, "a", "failed", now)
		gone := errors.New("killed")
		log.refuse = func(topic, _ string) error {
			if topic == deadTopic {
				return gone
			}
			return nil
		}
		if result, err := log.topic().Run(t.Context(), redrive(Filter{}), nil); !errors.Is(err, gone) || result.Done != 0 {
			t.Errorf("%+v, %v", result, err)
		}
		log.refuse = nil
		result := must.Get(log.topic().Run(t.Context(), redrive(Filter{}), nil))(t)
		if result.Done != 1 || log.pending(t) != "map[]" || len(log.keys(shortest)) != 2 {
			t.Errorf("%+v, pending %v, sent %v", result, log.pending(t), log.keys(shortest))
		}
	})
}

func TestRedrive_ARefusedRecordDelaysNoOther(t *testing.T) {
	log := &fakeLog{}
	for i := range 9 {
		log.addDeadLetter(t, 0, fmt.Sprint(i), "failed", now)
	}
	log.refuse = func(topic, key string) error {
		if topic == shortest && (key == "3" || key == "8") {
			return fmt.Errorf("%w: too large", wire.ErrRefused)
		}
		return nil
	}
	result := must.Get(log.topic().Run(t.Context(), redrive(Filter{}), nil))(t)
	if result.Done != 7 || result.Refused != 2 || !strings.Contains(result.Refusals[0].Why, wire.ErrRefused.Error()) || log.pending(t) != "map[failed:2]" {
		t.Errorf("%+v, pending %v", result, log.pending(t))
	}
}

func TestRedrive_MarksTheRecordsSentBeforeAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{most: 2}
		for i := range 6 {
			log.addDeadLetter(t, 0, fmt.Sprint(i), "failed", now)
		}
		log.refuse = func(topic, key string) error {
			if topic == shortest && key == "4" {
				return errors.New("no leader")
			}
			return nil
		}
		result, err := log.topic().Run(t.Context(), redrive(Filter{}), nil)
		if err == nil || result.Done < 4 || log.pending(t) != fmt.Sprintf("map[failed:%d]", 6-result.Done) {
			t.Errorf("%v: %+v, pending %v", err, result, log.pending(t))
		}
	})
}

// A starved broker may not answer a look-up within the time of one request.
func TestRedrive_RepeatsALookUpWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{}
		log.addDeadLetter(t, 0, "a", "failed", now)
		topic := log.topic()
		topic.Log = log
		result, err := topic.Run(t.Context(), redrive(Filter{}), nil)
		expect.That(t, err == nil && result.Done == 1 && log.asked > 3, "%+v, %v, after %d look-ups", result, err, log.asked)
	})
}

// slowLog does not answer two look-ups of partitions.
type slowLog struct {
	fakeLog
	asked int
}

func (s *slowLog) Partitions(context.Context, string) (int, error) {
	if s.asked++; s.asked == 2 || s.asked == 3 { // the first is for the dead letters
		return 0, context.DeadlineExceeded
	}
	return 2, nil
}

func (s *slowLog) Send(ctx context.Context, topic string, records []wire.RawRecord, done func(send.Result)) {
	s.sender.By(s).Send(ctx, topic, records, done)
}

// A plan has a bound, and repeating it handles the rest: each redrive gets further, also behind dead letters that were handled before.
func TestRedrive_TheRestIsForARepetition(t *testing.T) {
	log := &fakeLog{most: 3}
	for i := range 20 {
		log.addDeadLetter(t, i%2, fmt.Sprint(i), "failed", now)
	}
	topic := log.topic()
	topic.most = 4
	for left := 20; left > 0; left -= 4 {
		plan := must.Get(topic.MakePlan(t.Context(), redrive(Filter{})))(t)
		result := must.Get(topic.Run(t.Context(), redrive(Filter{Through: plan.Through}), nil))(t)
		diff := cmp.Diff(plan, result.Plan)
		expect.That(t, diff == "" && result.Done == 4 && plan.Pending == 4 && plan.Later == left-4, "of %d: %+v (-plan +done):\n%s", left, result, diff)
	}
	expect.Equal(t, len(log.keys(shortest)), 20, "records that were sent")
	plan := must.Get(topic.MakePlan(t.Context(), redrive(Filter{})))(t)
	expect.That(t, plan.Pending == 0 && plan.Later == 0, "at the end: %+v", plan)
}

func TestResolution_RoundTrip(t *testing.T) {
	want := Resolution{Partition: 3, Offset: 1234567890123, How: Redriven}
	m := want.Encode([]byte("order-17"))
	got, ok := DecodeResolution(&m)
	expect.That(t, ok && got == want && string(m.Key) == "order-17" && m.Value != nil, "%+v, %v; key %q, value %v", got, ok, m.Key, m.Value)
}

func TestDecodeResolution_RejectsOtherRecords(t *testing.T) {
	dead := wire.DeadLetter(Resolution{Offset: 5, How: Discarded}.Encode([]byte("a")), "relay", "bad_due", "")
	_, ok := DecodeResolution(&dead)
	expect.That(t, !ok, "a dead letter whose record has a resolution's headers is read as a resolution")
	for _, settles := range []string{"", "5", "0/", "/5", "0/-5", "-1/5", "0/5/6", "a/b", "0/9223372036854775808", "99999999999/1"} {
		m := wire.Message{Headers: []wire.Header{{Key: HeaderSettles, Value: []byte(settles)}}}
		got, ok := DecodeResolution(&m)
		expect.That(t, !ok, "%q is read as %+v", settles, got)
	}
}
