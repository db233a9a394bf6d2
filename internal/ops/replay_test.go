package ops

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// replayedLog has a close topic with one partition of records; its replay topic has two.
type replayedLog struct {
	Log
	appending sync.Mutex
	records   []wire.RawRecord
	fail      error  // returned by the second append
	large     string // the order whose record the replay topic refuses
	sent      map[int][]wire.Message
	appends   int
	kept      map[string]int64 // commits by group
	refuse    error            // returned for commits
}

func (f *replayedLog) Partitions(context.Context, string) (int, error) { return 1, nil }

func (f *replayedLog) TopicID(context.Context, string) ([16]byte, error) {
	return [16]byte{}, nil
}

func (f *replayedLog) Commits(_ context.Context, group, _ string, n int) ([]kafka.Commit, error) {
	commits := make([]kafka.Commit, n)
	commits[0].Offset = -1
	if at, ok := f.kept[group]; ok {
		commits[0].Offset = at
	}
	return commits, f.refuse
}

func (f *replayedLog) SetPosition(_ context.Context, group, _ string, _ int, offset int64) error {
	if f.refuse == nil {
		f.kept[group] = offset
	}
	return f.refuse
}

func (f *replayedLog) Window(context.Context, string, kafka.Moment, kafka.Moment) ([]kafka.Span, error) {
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

func (f *replayedLog) Idempotent(func(int)) wire.AppendFunc {
	return func(_ context.Context, topic string, p int, records []wire.RawRecord) (time.Time, error) {
		f.appending.Lock()
		defer f.appending.Unlock()
		if f.appends++; f.fail != nil && f.appends == 2 {
			return time.Time{}, f.fail
		}
		if topic != "again" {
			return time.Time{}, errors.New("appended to " + topic)
		}
		if slices.ContainsFunc(records, func(r wire.RawRecord) bool { return string(r.Key()) == f.large }) {
			return time.Time{}, wire.ErrRefused
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

// keys returns the keys of the sent records, sorted.
func (f *replayedLog) keys() string {
	var keys []string
	for _, messages := range f.sent {
		for _, m := range messages {
			keys = append(keys, string(m.Key))
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, "")
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

// newLog returns a log with records of the orders a, b and c, a replay, and an invalid record.
func newLog(t *testing.T) *replayedLog {
	t.Helper()
	log := &replayedLog{sent: map[int][]wire.Message{}, kept: map[string]int64{}}
	for _, m := range []wire.Message{record(t, "a", 0), record(t, "b", 3), record(t, "c", 0), record(t, "d", 0).Resend()} {
		log.append(m)
	}
	log.records = append(log.records, wire.RawRecord{Offset: 4, Body: []byte{1}})
	return log
}

var window = ReplayWindow{Topic: "close", Into: "again", From: time.UnixMilli(1), To: time.UnixMilli(2), Groups: "replay-"}

// replay plans the window and replays it.
func replay(t *testing.T, log *replayedLog, w ReplayWindow, o ReplayOptions) (ReplayResult, error) {
	t.Helper()
	plan := must.Get(NewReplayPlan(t.Context(), log, w))(t)
	return Replay(t.Context(), log, plan, o)
}

func TestReplay_SendsAllButReplaysOnTheReplayLaneWithFullRetries(t *testing.T) {
	log := newLog(t)
	plan, err := NewReplayPlan(t.Context(), log, window)
	must.That(t, err == nil && plan.Records == 5, "%+v, %v", plan, err)
	var progress []int64
	result, err := Replay(t.Context(), log, plan, ReplayOptions{Progress: func(done int64) { progress = append(progress, done) }})
	expect.That(t, err == nil && result.Sent == 3 && result.Skipped == 2, "%+v, %v; want 3 sent and 2 skipped", result, err)
	expect.Same(t, progress, []int64{2, 4, 5}, "progress")
	keys := map[int]string{}
	for p, messages := range log.sent {
		for _, m := range messages {
			keys[p] += string(m.Key)
			if r, err := m.Decode(); err != nil || r.Lane != wire.LaneReplay || r.Attempt != 0 {
				t.Errorf("%+v, %v", r, err)
			}
		}
	}
	expect.Same(t, keys, map[int]string{0: "b", 1: "ac"}, "by partition")
}

func TestReplay_ContinuesAfterAnInterruptionAndSendsNothingAfterTheEnd(t *testing.T) {
	log := newLog(t)
	log.fail = errors.New("no broker")
	var sent []int
	for _, want := range []error{log.fail, nil, nil} {
		result, err := replay(t, log, window, ReplayOptions{Rate: 10}) // one record at a time
		must.That(t, errors.Is(err, want) && result.NotKept == "", "%+v, %v; want %v", result, err, want)
		sent = append(sent, result.Sent)
	}
	if diff := cmp.Diff([]int{1, 2, 0}, sent); diff != "" || log.keys() != "abc" {
		t.Errorf("sent %s, by run (-want +got):\n%s", log.keys(), diff)
	}
	again := window
	again.Restart = true
	if result, err := replay(t, log, again, ReplayOptions{}); err != nil || result.Sent != 3 || result.Handled != 0 {
		t.Errorf("with Restart: %+v, %v", result, err)
	}
	for what, other := range map[string]ReplayWindow{
		"another window":   {Topic: "close", Into: "again", From: time.UnixMilli(1), To: time.UnixMilli(3), Groups: "replay-"},
		"one order":        {Topic: "close", Into: "again", From: time.UnixMilli(1), To: time.UnixMilli(2), Groups: "replay-", Orders: []string{"a"}},
		"without progress": {Topic: "close", Into: "again", From: time.UnixMilli(1), To: time.UnixMilli(2)},
	} {
		if plan, err := NewReplayPlan(t.Context(), log, other); err != nil || plan.Records != 5 || plan.Handled != 0 {
			t.Errorf("%s: %+v, %v; want all records", what, plan, err)
		}
	}
}

// A run that continues would take the earlier run's progress of the partition for its own.
func TestReplay_DoesNotBeginAgainIfTheProgressStands(t *testing.T) {
	log := newLog(t)
	if result, err := replay(t, log, window, ReplayOptions{}); err != nil || result.Sent != 3 {
		t.Fatalf("%+v, %v", result, err)
	}
	again := window
	again.Restart = true
	plan := must.Get(NewReplayPlan(t.Context(), log, again))(t)
	log.refuse = errors.New("the coordinator moves")
	if result, err := Replay(t.Context(), log, plan, ReplayOptions{}); !errors.Is(err, log.refuse) || result.Sent != 0 {
		t.Errorf("%+v, %v; want an error before a record is sent", result, err)
	}
	log.refuse = nil
	if result, err := replay(t, log, again, ReplayOptions{}); err != nil || result.Sent != 3 {
		t.Errorf("once more: %+v, %v", result, err)
	}
}

// A record of the largest size that the close topic accepts is too large with the header of a replay.
func TestReplay_PassesOverRefusedRecords(t *testing.T) {
	log := newLog(t)
	log.large = "b"
	result, err := replay(t, log, window, ReplayOptions{})
	expect.Is(t, err, ErrReplayRefused, "a replay with a refused record")
	expect.Says(t, err, `1, such as 0/1 of order "b"`, "a replay with a refused record")
	expect.That(t, log.keys() == "ac" && result.Sent == 2 && result.Refused == 1 && result.Skipped == 2 && len(result.Missing) == 0,
		"sent %s: %+v", log.keys(), result)
	must.That(t, len(result.Refusals) == 1, "%+v", result.Refusals)
	expect.Equal(t, result.Refusals[0].At.String()+" "+result.Refusals[0].Key, "0/1 b", "position and order of the refused record")
	again, err := replay(t, log, window, ReplayOptions{})
	expect.That(t, err == nil && again.Sent == 0 && again.Refused == 0 && again.Handled == 5, "the same again: %+v, %v", again, err)

	log = newLog(t)
	log.large, log.fail = "b", errors.New("no broker")
	if result, err := replay(t, log, window, ReplayOptions{Rate: 10}); !errors.Is(err, log.fail) || result.Sent != 1 {
		t.Fatalf("%+v, %v; want one record, then an interruption", result, err)
	}
	result, err = replay(t, log, window, ReplayOptions{Rate: 10})
	expect.That(t, errors.Is(err, ErrReplayRefused) && result.Sent == 1 && result.Refused == 1 && log.keys() == "ac", "continued: %+v, %v, sent %s",
		result, err, log.keys())
}

func TestReplay_ThatMayNotKeepItsProgressSaysSoAndSends(t *testing.T) {
	log := newLog(t)
	log.refuse = &kafka.AccessError{What: "user ann lacks the ACL Read on Group replay-17"}
	result, err := replay(t, log, window, ReplayOptions{})
	expect.That(t, err == nil && result.Sent == 3 && strings.Contains(result.NotKept, "lacks the ACL Read on Group"), "%+v, %v", result, err)
	log.refuse = errors.New("no coordinator")
	if _, err := NewReplayPlan(t.Context(), log, window); !errors.Is(err, log.refuse) {
		t.Errorf("%v: it may have sent a part before", err)
	}
}

func TestReplay_SendsNoMoreThanItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &replayedLog{sent: map[int][]wire.Message{}, kept: map[string]int64{}}
		for range 31 {
			log.append(record(t, "a", 0))
		}
		begin := time.Now()
		result, err := replay(t, log, window, ReplayOptions{Rate: 10})
		if took := time.Since(begin); err != nil || result.Sent != 31 || took < 3*time.Second || took > 4*time.Second {
			t.Errorf("%d sent in %v, %v; want 31 at 10 a second", result.Sent, took, err)
		}
	})
}

// ordersOfCategory is a database with the categories of orders.
type ordersOfCategory struct {
	categories map[string]string
	verdicts   map[string]orderclose.Verdict
	asked      []string
	err        error
}

func (d *ordersOfCategory) Categories(_ context.Context, reqs []orderclose.CloseRequest) (map[string]string, error) {
	for _, r := range reqs {
		d.asked = append(d.asked, r.OrderID)
	}
	return d.categories, d.err
}

func (d *ordersOfCategory) PreviewClose(_ context.Context, _ orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	var out []orderclose.Outcome
	for _, r := range reqs {
		d.asked = append(d.asked, r.OrderID)
		out = append(out, orderclose.Outcome{OrderID: r.OrderID, Verdict: d.verdicts[r.OrderID]})
	}
	if d.err != nil {
		return nil, d.err
	}
	return out, nil
}

func TestReplay_SelectsOrdersCategoriesAndPartitions(t *testing.T) {
	log := newLog(t)
	m := must.Get(wire.Record{Order: orderclose.Order{ID: "e", Category: "virtual", CreatedAt: time.Now(), Due: time.Now()}, Release: time.Now()}.Encode())(t)
	log.append(m)
	database := &ordersOfCategory{categories: map[string]string{"a": "virtual", "b": "physical", "e": "physical"}} // not c
	for _, c := range []struct {
		what       string
		w          ReplayWindow
		sent       string
		unselected int
		missing    []string
	}{
		{"orders", ReplayWindow{Orders: []string{"x", "a", "e"}}, "ae", 4, []string{"x"}},
		{"a category, of the record or of the database", ReplayWindow{Categories: []string{"virtual"}}, "ae", 2, nil},
		{"an order of a category", ReplayWindow{Orders: []string{"b", "a"}, Categories: []string{"physical", "frozen"}}, "b", 5, nil},
		{"a partition", ReplayWindow{OnlyPartitions: []int{0}}, "abce", 0, nil},
	} {
		log.sent = map[int][]wire.Message{}
		c.w.Topic, c.w.Into, c.w.From, c.w.To = window.Topic, window.Into, window.From, window.To
		r, err := replay(t, log, c.w, ReplayOptions{Database: database})
		if err != nil || log.keys() != c.sent || r.Unselected != c.unselected || !slices.Equal(r.Missing, c.missing) {
			t.Errorf("%s: sent %s, %+v, %v; want %s, %d not selected, %v missing", c.what, log.keys(), r, err, c.sent, c.unselected, c.missing)
		}
	}
	expect.That(t, !slices.Contains(database.asked, "e"), "the database was asked about %v: the record of e has a category", database.asked)
	if _, err := NewReplayPlan(t.Context(), log, ReplayWindow{From: window.From, To: window.To, OnlyPartitions: []int{1}}); !errors.Is(err, ErrNoSuchPartition) {
		t.Errorf("partition 1 of 1: %v", err)
	}
}

func TestReplay_RefusesACategoryThatNeitherRecordNorDatabaseKnows(t *testing.T) {
	w := window
	w.Categories = []string{"virtual"}
	down := errors.New("no connection")
	for _, c := range []struct {
		database ReplayDatabase
		want     error
	}{{nil, errNoDatabase}, {&ordersOfCategory{err: store.ErrNoCategory}, store.ErrNoCategory}, {&ordersOfCategory{err: down}, down}} {
		log := newLog(t)
		_, err := replay(t, log, w, ReplayOptions{Database: c.database})
		if !errors.Is(err, c.want) || errors.Is(err, ErrCategoryUnknown) == (c.want == down) || log.appends > 0 {
			t.Errorf("%v, after %d appends; want %v", err, log.appends, c.want)
		}
		if c.want != down && !strings.Contains(err.Error(), `close/0 has a record without a category at offset 0, of order "a"`) {
			t.Errorf("%v names no record", err)
		}
	}
}

func TestPreviewReplay_CountsEachOrderOnceAndChangesNothing(t *testing.T) {
	log := newLog(t)
	log.append(record(t, "a", 1)) // a retry of the same order
	plan := must.Get(NewReplayPlan(t.Context(), log, window))(t)
	database := &ordersOfCategory{verdicts: map[string]orderclose.Verdict{"a": orderclose.Closed, "b": orderclose.AlreadyPaid, "c": orderclose.AlreadyPaid}}
	var progress []int64
	got, err := PreviewReplay(t.Context(), log, plan, database, func(done int64) { progress = append(progress, done) })
	want := &ReplayPreview{Records: 4, Orders: 3, Skipped: 2, Verdicts: map[orderclose.Verdict]int64{orderclose.Closed: 1, orderclose.AlreadyPaid: 2}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]int64{2, 4, 6}, progress); diff != "" || log.appends > 0 || len(log.kept) > 0 {
		t.Errorf("%d appends, kept %v, progress (-want +got):\n%s", log.appends, maps.Clone(log.kept), diff)
	}
	got, err = PreviewReplay(t.Context(), log, plan, nil, nil)
	expect.That(t, err == nil && got.Orders == 3 && got.Verdicts == nil, "without a database: %+v, %v", got, err)
	database.err = errors.New("no connection")
	got, err = PreviewReplay(t.Context(), log, plan, database, nil)
	want.Verdicts, want.NotRead = map[orderclose.Verdict]int64{}, "no connection"
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("the database is down: %v (-want +got):\n%s", err, diff)
	}
}

func TestReplay_ReturnsTheProgressWithAnError(t *testing.T) {
	log := newLog(t)
	log.fail = errors.New("no broker")
	result, err := replay(t, log, window, ReplayOptions{})
	expect.That(t, errors.Is(err, log.fail) && result.Sent == 1, "%+v, %v", result, err)
}

func TestNewReplayPlan_RefusesAnEmptyWindow(t *testing.T) {
	_, err := NewReplayPlan(t.Context(), &replayedLog{}, ReplayWindow{From: time.UnixMilli(2), To: time.UnixMilli(2)})
	expect.That(t, err != nil, "no error")
}
