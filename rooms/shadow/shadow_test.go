package shadow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// toClose is a partition of the close topic.
var toClose = testkit.TopicPartition{Topic: "order-close"}

// errDown is the error of a server that does not answer.
var errDown = fmt.Errorf("%w: no connection", orderclose.ErrUnavailable)

// fakeStore is a database that only reads. Its orders are unpaid and due, unless a field says
// otherwise.
type fakeStore struct {
	due     map[string]time.Time
	verdict map[string]orderclose.Verdict
	bad     map[string]bool // the question about it fails
	fail    func() error    // may be nil

	mu    sync.Mutex
	asked map[string]int
}

func (s *fakeStore) PreviewClose(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	if s.fail != nil {
		if err := s.fail(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var outcomes []orderclose.Outcome
	for _, r := range requests {
		if s.bad[r.OrderID] {
			return nil, errors.New("illegal mix of collations")
		}
		if s.asked == nil {
			s.asked = map[string]int{}
		}
		s.asked[r.OrderID]++
		o := orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, Due: s.due[r.OrderID], At: now}
		if v := s.verdict[r.OrderID]; v != "" {
			o.Verdict = v
		} else if now.Before(o.Due) {
			o.Verdict = orderclose.NotDue
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// put appends records of orders to the close topic.
func put(t *testing.T, log *testkit.Log, ids ...string) {
	t.Helper()
	for _, id := range ids {
		o := orderclose.Order{ID: id, CreatedAt: time.Now(), Due: time.Now()}
		m := must.Get(wire.Record{Order: o, Release: o.Due}.Encode())(t)
		log.Put(toClose, m)
	}
}

// start runs a Shadow until stop is called.
func start(t *testing.T, log *testkit.Log, s Previewer, metrics prometheus.Registerer) (stop func()) {
	t.Helper()
	shadow := must.Get(New(Options{
		Log: log, Store: s, Group: "g", CloseTopic: toClose.Topic, Topic: "shadow",
		OnHang: func(why string) { t.Error(why) }, Registerer: metrics,
	}))(t)
	return testkit.Start(t, shadow.Run)
}

// verdicts returns the verdicts in the shadow topic as "id verdict", and fails if anything was
// appended elsewhere.
func verdicts(t *testing.T, log *testkit.Log) (all []string) {
	t.Helper()
	for topic := range maps.Keys(log.Appended()) {
		if topic != "shadow" {
			t.Errorf("records were appended to %s", topic)
		}
	}
	for _, m := range log.Appended()["shadow"] {
		v, err := DecodeVerdict(m.Value)
		if err != nil || v.OrderID != string(m.Key) || v.Path != orderclose.PathPipeline {
			t.Errorf("%s: %+v, %v", m.Key, v, err)
		}
		all = append(all, fmt.Sprintf("%s %s", v.OrderID, v.Verdict))
	}
	return all
}

func TestShadow_EachRecordGetsAVerdictAndItsOffsetIsCommittedAfterTheAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, m := &testkit.Log{}, testkit.NewMetrics()
		s := &fakeStore{verdict: map[string]orderclose.Verdict{"b": orderclose.AlreadyPaid, "c": orderclose.NotFound}}
		put(t, log, "a", "b", "c", "a")
		defer start(t, log, s, m)()
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"a closed", "b already_paid", "c not_found", "a closed"}, verdicts(t, log)); diff != "" || log.DoneBelow(toClose) != 4 {
			t.Errorf("done below %d (-want +got):\n%s", log.DoneBelow(toClose), diff)
		}
		if n := m.Value("shadow_verdicts_total", "verdict", "closed"); n != 2 {
			t.Errorf("%v verdicts closed are counted", n)
		}
		if n := m.Series("shadow_verdicts_total"); n != 7 {
			t.Errorf("%d verdicts have a series at 0", n)
		}
	})
}

// A record that comes before the due time of the database waits, and delays no other.
func TestShadow_AnOrderThatIsNotDueWaitsForItsDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, due := &testkit.Log{}, time.Now().Add(5*time.Hour)
		s := &fakeStore{due: map[string]time.Time{"later": due}}
		put(t, log, "later", "a")
		stop := start(t, log, s, nil)
		time.Sleep(time.Hour)
		put(t, log, "b")
		time.Sleep(time.Hour)
		if got := verdicts(t, log); !slices.Equal(got, []string{"a closed", "b closed"}) || log.DoneBelow(toClose) != 0 {
			t.Errorf("done below %d, %v", log.DoneBelow(toClose), got)
		}
		stop() // the next process asks again about the order that waits, and about no other
		defer start(t, log, s, nil)()
		time.Sleep(time.Until(due.Add(time.Second)))
		if got := verdicts(t, log); !slices.Equal(got, []string{"a closed", "b closed", "later closed"}) || log.DoneBelow(toClose) != 3 {
			t.Errorf("done below %d, %v", log.DoneBelow(toClose), got)
		}
		if s.asked["later"] > 4 || s.asked["a"] != 1 {
			t.Errorf("asked %v", s.asked)
		}
		v, err := DecodeVerdict(log.Appended()["shadow"][2].Value)
		if err != nil || !v.Due.Equal(due) || v.At.Before(due) || v.At.After(due.Add(time.Second)) {
			t.Errorf("%+v, %v, of an order that is due at %v", v, err, due)
		}
	})
}

func TestShadow_AnOrderForWhichMemoryHasNoRoomIsNotDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s, in := &testkit.Log{}, &fakeStore{due: map[string]time.Time{}}, time.Now().Add(time.Hour)
		for i := range maxParked + 3 {
			id := fmt.Sprint(i)
			put(t, log, id)
			s.due[id] = in
		}
		defer start(t, log, s, nil)()
		time.Sleep(time.Minute)
		want := []string{"10000 not_due", "10001 not_due", "10002 not_due"}
		if got := verdicts(t, log); !slices.Equal(got, want) {
			t.Errorf("%d verdicts, want %v", len(got), want)
		}
		time.Sleep(2 * time.Hour)
		if got := verdicts(t, log); len(got) != maxParked+3 || log.DoneBelow(toClose) != maxParked+3 {
			t.Errorf("done below %d, %d verdicts", log.DoneBelow(toClose), len(got))
		}
	})
}

// While the database or the topic does not answer, a Shadow waits. It skips nothing.
func TestShadow_WaitsForTheDatabaseAndTheTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		down := func(from, to time.Duration) bool {
			at := time.Since(begin)
			return at >= from && at < to
		}
		log := &testkit.Log{Fail: func(string) error {
			if down(20*time.Minute, time.Hour) {
				return errDown
			}
			return nil
		}}
		s := &fakeStore{fail: func() error {
			if down(0, 10*time.Minute) {
				return errDown
			}
			return nil
		}}
		put(t, log, "first")
		want := []string{"first closed"}
		defer start(t, log, s, nil)()
		for i := range 90 { // a record each minute
			id := fmt.Sprint(i)
			put(t, log, id)
			want = append(want, id+" closed")
			time.Sleep(time.Minute)
		}
		if diff := cmp.Diff(want, verdicts(t, log)); diff != "" || log.DoneBelow(toClose) != 91 {
			t.Errorf("done below %d (-want +got):\n%s", log.DoneBelow(toClose), diff)
		}
	})
}

// The records in memory are bounded while the topic accepts nothing.
func TestShadow_AnswersAreBoundedWhileTheTopicAcceptsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testkit.Log{Fail: func(string) error { return errDown }}
		s := &fakeStore{}
		for i := range 3 * maxUnacked {
			put(t, log, fmt.Sprint(i))
		}
		defer start(t, log, s, nil)()
		time.Sleep(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.asked); n < maxUnacked || n >= maxUnacked+maxBatch || log.DoneBelow(toClose) != 0 {
			t.Errorf("the database was asked about %d orders, want about %d; done below %d", n, maxUnacked, log.DoneBelow(toClose))
		}
	})
}

// It must not block the others.
func TestShadow_AnOrderThatTheDatabaseCannotReadHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s := &testkit.Log{}, &fakeStore{bad: map[string]bool{"bad": true}}
		put(t, log, "a", "bad", "b")
		defer start(t, log, s, nil)()
		time.Sleep(time.Second)
		if got := verdicts(t, log); !slices.Equal(got, []string{"a closed", "bad failed", "b closed"}) || log.DoneBelow(toClose) != 3 {
			t.Errorf("done below %d, %v", log.DoneBelow(toClose), got)
		}
	})
}

// It is in the log of the process and nowhere else: the topic for dead letters belongs to the closer.
func TestShadow_AnUnreadableRecordIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, m := &testkit.Log{}, testkit.NewMetrics()
		log.Put(toClose, wire.Message{Key: []byte("garbage"), Value: []byte("{")})
		put(t, log, "a")
		defer start(t, log, &fakeStore{}, m)()
		time.Sleep(time.Second)
		if got := verdicts(t, log); !slices.Equal(got, []string{"a closed"}) || log.DoneBelow(toClose) != 2 {
			t.Errorf("done below %d, %v", log.DoneBelow(toClose), got)
		}
		if n := m.Value("dead_letters_total", "cause", "bad_version"); n != 0 {
			t.Errorf("%v dead letters are counted", n)
		}
	})
}

func TestShadow_ARecreatedTopicIsReadFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s := &testkit.Log{}, &fakeStore{due: map[string]time.Time{"later": time.Now().Add(time.Hour)}}
		put(t, log, "a", "later")
		defer start(t, log, s, nil)()
		time.Sleep(time.Second)
		log.Recreate(toClose)
		put(t, log, "b")
		time.Sleep(2 * time.Hour)
		if got := verdicts(t, log); !slices.Equal(got, []string{"a closed", "b closed"}) || log.DoneBelow(toClose) != 1 {
			t.Errorf("done below %d, %v", log.DoneBelow(toClose), got)
		}
	})
}

func TestNew_NamesWhatIsMissing(t *testing.T) {
	if _, err := New(Options{Log: &testkit.Log{}, Store: &fakeStore{}, Group: "g", CloseTopic: "c"}); err == nil {
		t.Error("a Shadow without a topic is accepted")
	}
}
