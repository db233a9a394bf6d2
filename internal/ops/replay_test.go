package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/wire"
)

// replayedLog has a close topic of one partition; its replay topic has two.
type replayedLog struct {
	records []wire.RawRecord
	fail    error // returned by the second append
	sent    map[int][]wire.Message
	appends int
}

func (f *replayedLog) Window(context.Context, string, time.Time, time.Time) ([]kafka.Span, error) {
	return []kafka.Span{{Partition: 0, First: 0, End: int64(len(f.records))}}, nil
}

func (f *replayedLog) ReadSpan(_ context.Context, _ string, s kafka.Span, each func([]wire.RawRecord) error) error {
	for i := s.First; i < s.End; i += 2 { // two records for each fetch
		if err := each(f.records[i:min(i+2, s.End)]); err != nil {
			return err
		}
	}
	return nil
}

func (f *replayedLog) GroupForClaim(_ context.Context, _ wire.Claim, _ string, records []wire.RawRecord) (map[int][]wire.RawRecord, error) {
	spread := map[int][]wire.RawRecord{}
	for _, r := range records {
		p := int(r.Key()[0]) % 2
		spread[p] = append(spread[p], r)
	}
	return spread, nil
}

func (f *replayedLog) Idempotent(func(), func(int)) wire.AppendFunc {
	return func(_ context.Context, topic string, p int, records []wire.RawRecord) (time.Time, error) {
		if f.appends++; f.fail != nil && f.appends == 2 {
			return time.Time{}, f.fail
		}
		if topic != "again" {
			return time.Time{}, errors.New("appended to " + topic)
		}
		for _, r := range records {
			m, err := r.Message()
			if err != nil {
				return time.Time{}, err
			}
			f.sent[p] = append(f.sent[p], m)
		}
		return time.Now(), nil
	}
}

func record(t *testing.T, id string, attempt int) wire.Message {
	t.Helper()
	now := time.Now()
	m, err := wire.Record{Order: orderclose.Order{ID: id, CreatedAt: now, Due: now}, Release: now, Attempt: attempt}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newLog(t *testing.T) *replayedLog {
	t.Helper()
	log := &replayedLog{sent: map[int][]wire.Message{}}
	replayed := record(t, "d", 0).Resend()
	for _, m := range []wire.Message{record(t, "a", 0), record(t, "b", 3), record(t, "c", 0), replayed} {
		log.records = append(log.records, m.Raw())
	}
	log.records = append(log.records, wire.RawRecord{Body: []byte{1}}) // invalid
	return log
}

var window = ReplayWindow{Topic: "close", Into: "again", From: time.UnixMilli(1), To: time.UnixMilli(2)}

func TestRun_SendsAllButReplaysOnTheReplayLaneWithFullRetries(t *testing.T) {
	log := newLog(t)
	plan, err := NewReplayPlan(t.Context(), log, window)
	if err != nil || plan.Records != 5 {
		t.Fatalf("%+v, %v", plan, err)
	}
	var progress []int64
	result, err := Replay(t.Context(), log, plan, func(done int64) { progress = append(progress, done) })
	if err != nil || result.Sent != 3 || result.Skipped != 2 {
		t.Errorf("%+v, %v; want 3 sent and 2 skipped", result, err)
	}
	if diff := cmp.Diff([]int64{2, 4, 5}, progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	keys := map[int]string{}
	for p, messages := range log.sent {
		for _, m := range messages {
			keys[p] += string(m.Key)
			if r, err := m.Decode(); err != nil || r.Lane != wire.LaneReplay || r.Attempt != 0 {
				t.Errorf("%+v, %v", r, err)
			}
		}
	}
	if diff := cmp.Diff(map[int]string{0: "b", 1: "ac"}, keys); diff != "" {
		t.Errorf("by partition (-want +got):\n%s", diff)
	}
}

func TestRun_ReturnsTheProgressWithAnError(t *testing.T) {
	log := newLog(t)
	log.fail = errors.New("no broker")
	plan, err := NewReplayPlan(t.Context(), log, window)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := Replay(t.Context(), log, plan, nil); !errors.Is(err, log.fail) || result.Sent != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestMake_RefusesAnEmptyWindow(t *testing.T) {
	if _, err := NewReplayPlan(t.Context(), &replayedLog{}, ReplayWindow{From: time.UnixMilli(2), To: time.UnixMilli(2)}); err == nil {
		t.Error("no error")
	}
}
