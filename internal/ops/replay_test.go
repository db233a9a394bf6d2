package ops

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/reads"
	"github.com/orderclose/orderclose/internal/send"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// replayedLog has a close topic with one partition of records.
type replayedLog struct {
	Log
	copies  testkit.Log
	records []wire.RawRecord
}

func (f *replayedLog) Window(context.Context, string, kafka.Moment, kafka.Moment) ([]reads.Span, error) {
	return []reads.Span{{Partition: 0, First: 0, End: int64(len(f.records))}}, nil
}

func (f *replayedLog) ReadSpan(_ context.Context, _ string, s reads.Span, each func([]wire.RawRecord) error) error {
	for i := s.First; i < s.End; i += 2 { // two records for each fetch
		if err := each(f.records[i:min(i+2, s.End)]); err != nil {
			return err
		}
	}
	return nil
}

func (f *replayedLog) Partitions(ctx context.Context, topic string) (int, error) {
	return f.copies.Partitions(ctx, topic)
}

func (f *replayedLog) Send(ctx context.Context, topic string, records []wire.RawRecord, done func(send.Result)) {
	f.copies.Send(ctx, topic, records, done)
}

// keys returns the keys of the copies, sorted.
func (f *replayedLog) keys() string {
	return strings.Join(slices.Sorted(slices.Values(f.copies.Keys("close"))), "")
}

func (f *replayedLog) append(m wire.Message) {
	m.Offset = int64(len(f.records))
	f.records = append(f.records, m.Raw())
}

func record(t *testing.T, id string, attempt int) wire.Message {
	t.Helper()
	now := time.Now()
	m := must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: now, Due: now}, Release: now, Attempt: attempt}.Encode())(t)
	return m
}

// newLog returns a log with records of the orders a, b and c, a copy, and an invalid record.
func newLog(t *testing.T) *replayedLog {
	t.Helper()
	log := &replayedLog{}
	for _, m := range []wire.Message{record(t, "a", 0), record(t, "b", 3), record(t, "c", 0), record(t, "d", 0).Resend()} {
		log.append(m)
	}
	log.records = append(log.records, wire.RawRecord{Offset: 4, Body: []byte{1}})
	return log
}

// replay plans a replay of the records of some orders, or of all, and carries it out.
func replay(t *testing.T, log *replayedLog, perSecond int, orders ...string) (ReplayResult, error) {
	t.Helper()
	return Replay(t.Context(), log, planOf(t, log, orders...), perSecond, nil)
}

func planOf(t *testing.T, log *replayedLog, orders ...string) ReplayPlan {
	t.Helper()
	plan := ReplayPlan{Topic: "close", From: time.UnixMilli(1), To: time.UnixMilli(2), Orders: orders}
	must.Do(t, plan.measure(t.Context(), log))
	return plan
}

func TestReplay_SendsAllButCopiesWithFullRetries(t *testing.T) {
	log := newLog(t)
	plan := planOf(t, log)
	expect.Equal(t, plan.Records, int64(5), "records of the plan")
	var progress []int64
	result, err := Replay(t.Context(), log, plan, 1000, func(done int64) { progress = append(progress, done) })
	expect.That(t, err == nil && result.Sent == 3 && result.Skipped == 2, "%+v, %v; want 3 sent and 2 skipped", result, err)
	expect.Same(t, progress, []int64{2, 4, 5}, "progress")
	expect.Equal(t, log.keys(), "abc", "keys of the copies")
	for _, m := range log.copies.Appended()["close"] {
		r, err := m.Decode()
		expect.That(t, err == nil && m.Raw().IsCopy() && r.Attempt == 0, "%+v, %v", r, err)
	}
}

func TestReplay_ThatWasInterruptedSaysWhatItSentAndBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, away := newLog(t), errors.New("no broker")
		log.copies.Fail = func(string) error {
			if len(log.keys()) > 0 {
				return away
			}
			return nil
		}
		result, err := replay(t, log, 10) // one record at a time
		expect.That(t, errors.Is(err, away) && result.Sent == 1, "%+v, %v", result, err)
		log.copies.Fail = nil
		time.Sleep(5 * time.Second)
		result, err = replay(t, log, 1000)
		expect.That(t, err == nil && result.Sent == 3 && log.keys() == "aabc", "%+v, %v, sent %s", result, err, log.keys())
	})
}

// A record of the largest size that the close topic accepts is too large with the header of a copy.
func TestReplay_PassesOverRefusedRecords(t *testing.T) {
	log := newLog(t)
	log.copies.Answer = func(_ context.Context, _ string, _ int, keys []string) error {
		if slices.Contains(keys, "b") {
			return wire.ErrRefused
		}
		return nil
	}
	result, err := replay(t, log, 1000)
	expect.Is(t, err, ErrReplayRefused, "a replay with a refused record")
	expect.Says(t, err, `1, such as 0/1 of order "b"`, "a replay with a refused record")
	expect.That(t, log.keys() == "ac" && result.Sent == 2 && result.Refused == 1 && result.Skipped == 2, "sent %s: %+v", log.keys(), result)
	must.That(t, len(result.Refusals) == 1, "%+v", result.Refusals)
	expect.Equal(t, result.Refusals[0].At.String()+" "+result.Refusals[0].Key, "0/1 b", "position and order of the refused record")
}

func TestReplay_SendsNoMoreThanItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &replayedLog{}
		for range 31 {
			log.append(record(t, "a", 0))
			log.append(record(t, "other", 0)) // which costs no time
		}
		begin := time.Now()
		result, err := replay(t, log, 10, "a")
		if took := time.Since(begin); err != nil || result.Sent != 31 || took < 3*time.Second || took > 4*time.Second {
			t.Errorf("%d sent in %v, %v; want 31 at 10 a second", result.Sent, took, err)
		}
	})
}

func TestReplay_SelectsOrders(t *testing.T) {
	log := newLog(t)
	result, err := replay(t, log, 1000, "x", "a", "c")
	expect.That(t, err == nil && log.keys() == "ac" && result.Sent == 2 && result.Skipped == 3, "%+v, %v, sent %s", result, err, log.keys())
}

func TestPlanReplay_RefusesAnEmptyWindow(t *testing.T) {
	plan := ReplayPlan{From: time.UnixMilli(2), To: time.UnixMilli(2)}
	expect.Says(t, plan.measure(t.Context(), &replayedLog{}), "is empty", "an empty window")
}
