package control

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// controlLog is a control topic.
type controlLog struct {
	testkit.Log
	first, end int64
	hang       chan struct{} // if set, Bounds waits for it
}

var control = testkit.TopicPartition{Topic: "control"}

func (l *controlLog) Bounds(context.Context, string, int) (first, end int64, err error) {
	if l.hang != nil {
		<-l.hang
	}
	return l.first, l.end, nil
}

func (l *controlLog) Append(_ context.Context, _ string, _ int, messages []wire.Message) (time.Time, error) {
	for _, m := range messages {
		l.Put(control, m)
		l.end++
	}
	return time.Now(), nil
}

// put appends records of any kind.
func (l *controlLog) put(t *testing.T, all ...any) {
	t.Helper()
	for _, r := range all {
		var m wire.Message
		var err error
		switch r := r.(type) {
		case Sweep:
			m, err = r.Encode()
		case Announcement:
			m, err = r.Encode()
		case wire.Message:
			m = r
		}
		must.Do(t, err)
		_, _ = l.Append(t.Context(), "", 0, []wire.Message{m})
	}
}

// probe is a record that measures the brokers' clock.
var probe = wire.Message{Value: []byte(`{"probe":1}`)}

// notice is of an older relay: a log has lost records.
var notice = wire.Message{Key: []byte("lost"), Value: []byte(`{"topic":"delay_5m","partition":1,"first":0,"last":7,"reason":"gone"}`)}

// sweepAt is a sweep that began some minutes after noon.
func sweepAt(minutes int) Sweep {
	return Sweep{StartedAt: noon.Add(time.Duration(minutes) * time.Minute), Holder: "shop/17", Why: SweepPeriod, Lock: "held"}
}

// mustRead reads the topic and returns the minutes after noon of the sweeps.
func mustRead(t *testing.T, c *Reader) string {
	t.Helper()
	s := must.Get(c.Read(t.Context(), time.Now()))(t)
	all := "sweeps"
	for _, sweep := range s.Sweeps {
		all += fmt.Sprint(" ", sweep.StartedAt.Sub(noon).Minutes())
	}
	return all
}

func wantControl(t *testing.T, what, got, want string) {
	t.Helper()
	expect.Equal(t, got, want, "%s", what)
}

func TestControl_ReadsEachRecordOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		c := New(log, "control")
		wantControl(t, "an empty topic", mustRead(t, c), "sweeps")
		for range 5000 {
			log.put(t, probe)
		}
		log.put(t, sweepAt(0), notice, sweepAt(60), probe)
		wantControl(t, "a long topic", mustRead(t, c), "sweeps 60 0")
		log.put(t, notice, sweepAt(120))
		wantControl(t, "two more", mustRead(t, c), "sweeps 120 60 0")
		expect.Equal(t, log.Fetched(), log.end, "records that it read")
	})
}

func TestControl_StartsAgainInAnotherLog(t *testing.T) {
	for what, c := range map[string]struct {
		records int // of the new log, before its only sweep
		before  int // of the old log
	}{
		"shorter": {0, 5},
		"longer":  {9, 5},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &controlLog{}
				control := New(log, "control")
				for range c.before {
					log.put(t, probe)
				}
				log.put(t, sweepAt(0), notice)
				wantControl(t, "before", mustRead(t, control), "sweeps 0")
				log.Recreate(testkit.TopicPartition{Topic: "control"})
				log.end = 0
				for range c.records {
					log.put(t, probe)
				}
				log.put(t, sweepAt(60))
				wantControl(t, "after", mustRead(t, control), "sweeps 60")
			})
		})
	}
}

// Retention deleted records that were not read yet.
func TestControl_StartsAgainWhereTheLogBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		c := New(log, "control")
		log.put(t, sweepAt(0), sweepAt(60))
		wantControl(t, "before", mustRead(t, c), "sweeps 60 0")
		log.put(t, sweepAt(120), sweepAt(180))
		log.first = 3
		wantControl(t, "after", mustRead(t, c), "sweeps 180")
	})
}

func TestControl_SkipsWhatItCannotDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		for _, key := range []string{"pause", KeySweep, "lost", "unknown", ""} {
			log.put(t, wire.Message{Key: []byte(key), Value: []byte("{")}, wire.Message{Key: []byte(key)})
		}
		log.put(t, sweepAt(0))
		wantControl(t, "behind broken records", mustRead(t, New(log, "control")), "sweeps 0")
	})
}

// A sweep whose append got no answer is appended again, maybe behind a later sweep.
func TestControl_ASweepCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := sweepAt(0)
		other.Holder = "shop/18"
		log := &controlLog{}
		log.put(t, sweepAt(60), sweepAt(0), other, sweepAt(60))
		wantControl(t, "repeated", mustRead(t, New(log, "control")), "sweeps 60 0 0")
	})
}

func TestControl_RemembersTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		for i := range 3 * controlKeeps {
			log.put(t, sweepAt(i))
		}
		c := New(log, "control")
		s, err := c.Read(t.Context(), noon)
		must.That(t, err == nil && len(s.Sweeps) == controlKeeps, "%d sweeps, %v", len(s.Sweeps), err)
		last := 3*controlKeeps - 1
		diff := cmp.Diff(sweepAt(last), s.Sweeps[0])
		expect.That(t, diff == "", "%v", diff)
	})
}

// flood is a control topic full of large records of one kind. Each has something else that makes it large.
type flood struct {
	controlLog
	key  string
	next int
}

func (f *flood) Read(_ context.Context, at wire.Position) (wire.Fetched, error) {
	var entries strings.Builder
	for i := range 900 {
		fmt.Fprintf(&entries, `"%d %s":1,`, i, strings.Repeat("x", at0(f.next%3 == 0, 55)))
	}
	text := strings.Repeat("y", at0(f.next%3 == 1, 55_000))
	value := fmt.Sprintf(`{"process":"p%d%s","holder":"h%[1]d","started_at":"2026-01-01T00:00:00Z","error":%q,`+
		`"failing_since_ms":{%[4]s"":1}}`, f.next, strings.Repeat("z", at0(f.next%7 == 0, 400)), text, entries.String())
	f.next++
	m := wire.Message{Key: []byte(f.key), Value: []byte(value)}
	return wire.Fetched{Records: []wire.RawRecord{{Offset: at.Offset, Body: m.Raw().Body, Appended: time.Now().UnixMilli()}}, Next: at.Offset + 1}, nil
}

func at0(is bool, n int) int {
	if is {
		return n
	}
	return 0
}

// A principal that may write the topic costs a reader little memory.
func TestControl_AFloodTakesLittleMemory(t *testing.T) {
	for _, key := range []string{KeyProcess, KeySweep} {
		log := &flood{controlLog: controlLog{end: 1000}, key: key}
		c := New(log, "control")
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		state := must.Get(c.Read(t.Context(), time.Now()))(t)
		runtime.GC()
		runtime.ReadMemStats(&after)
		grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%s: %d processes, %d sweeps, %d bytes", key, len(state.Processes), len(state.Sweeps), grown)
		expect.That(t, grown < 100<<20 && len(state.Processes)+len(state.Sweeps) > 0, "%s: %d bytes, %d processes, %d sweeps", key, grown,
			len(state.Processes), len(state.Sweeps))
		runtime.KeepAlive(c)
	}
}

// A Read that waits for another one ends with its own context.
func TestControl_AReadDoesNotWaitForAnotherForLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{hang: make(chan struct{})}
		c := New(log, "control")
		first := make(chan error)
		go func() { _, err := c.Read(context.Background(), noon); first <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect.Is(t, expect.Err(c.Read(ctx, noon)), context.DeadlineExceeded, "the read")
		close(log.hang)
		expect.NoError(t, <-first)
		wantControl(t, "after that", mustRead(t, c), "sweeps")
	})
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCompare_SaysWhichShouldRunAndDoNot(t *testing.T) {
	ago := func(name string, d time.Duration) Process {
		return Process{Announcement: Announcement{Name: name}, Started: noon.Add(-d), Announced: noon.Add(-d)}
	}
	each := func(p Process, started time.Duration) Process { // a minute
		p.EverySeconds, p.Started = 60, noon.Add(-started)
		return p
	}
	ended := ago("relay@h:3:9464", time.Minute)
	ended.Ended = true
	for what, c := range map[string]struct {
		announced     []Process
		members, want []string
	}{
		"nobody": {nil, nil, nil},
		"a member": {[]Process{ago("closer@h:1:9464", time.Minute)}, []string{"closer@h:1:9464", "closer@h:1:9464"},
			[]string{"closer@h:1:9464 present"}},
		"a member that cannot say": {nil, []string{"closer@h:1", "some-other-client"}, []string{"closer@h:1 present"}},
		"killed": {[]Process{ago("relay@h:1:9464", time.Hour), ago("relay@h:2:9465", time.Hour)}, []string{"relay@h:2:9465"},
			[]string{"relay@h:1:9464 gone", "relay@h:2:9465 present"}},
		"stopped":      {[]Process{ended}, nil, nil},
		"just started": {[]Process{ago("relay@h:1:9464", time.Second)}, nil, []string{"relay@h:1:9464 present"}},
		"killed and started again": {[]Process{ago("relay@h:1:9464", time.Hour), ago("relay@h:7:9464", time.Minute)}, []string{"relay@h:7:9464"},
			[]string{"relay@h:7:9464 present"}},
		"killed beside another": {[]Process{ago("relay@h:1", time.Hour), each(ago("relay@h:2", time.Minute), 3*time.Hour)}, []string{"relay@h:2"},
			[]string{"relay@h:1 gone", "relay@h:2 present"}},
		"in no group":              {[]Process{each(ago("outbox@h:1:9464", 90*time.Second), time.Hour)}, nil, []string{"outbox@h:1:9464 present"}},
		"in no group, and silent":  {[]Process{each(ago("outbox@h:1:9464", 2*time.Minute), time.Hour)}, nil, []string{"outbox@h:1:9464 gone"}},
		"in no group, and stopped": {[]Process{each(ended, time.Hour)}, nil, nil},
		"killed long ago":          {[]Process{ago("relay@h:1:9464", expectedFor+time.Second)}, nil, nil},
	} {
		var got []string
		for _, p := range Compare(c.announced, c.members, noon) {
			got = append(got, fmt.Sprintf("%s %s", p.Name, p.State))
			want := p.Announced
			switch {
			case slices.Contains(c.members, p.Name):
				want = noon
			case p.State == Gone && p.EverySeconds == 0:
				want = time.Time{} // it has announced itself once, when it started
			}
			expect.That(t, p.Seen.Equal(want), "%s: %s was seen at %v, want %v", what, p.Name, p.Seen, want)
		}
		expect.Same(t, got, c.want, "%s", what)
	}
}

func TestSweep_IsDecodedAsItWasEncoded(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 7, 0, time.UTC)
	for what, s := range map[string]Sweep{
		"all fields": {
			StartedAt: at, Cutoff: at.Add(-time.Minute), TookMillis: 420, Lock: "held", Holder: "shop-1/17", Why: SweepPeriod, PeriodMillis: 60_000,
			Found: 45, Closed: 1, AlreadyPaid: 2, AlreadyClosed: 3, NotDue: 4, Excluded: 5, Paused: 6, PaymentPending: 7, Failed: 8,
			Missed: 1, AfterPause: 2, AfterFailure: 3, OldestDue: at.Add(-time.Hour), Error: "the lock was lost",
			Failures: []Failure{{"o-1", "locked", "locked: a row", 3, at}},
		},
		"one that found nothing":          {StartedAt: at, Cutoff: at.Add(-time.Minute), Lock: "none", Holder: "shop-1/17", Why: SweepPeriod},
		"one that could not read a clock": {StartedAt: at, Lock: "none", Holder: "shop-1/17", Why: SweepOnce, Error: "read the database clock: refused"},
	} {
		m := must.Get(s.Encode())(t)
		got, err := DecodeSweep(m.Value)
		diff := cmp.Diff(s, got)
		expect.That(t, err == nil && diff == "" && string(m.Key) == KeySweep, "%s: key %q, %v (-want +got):\n%s", what, m.Key, err, diff)
	}
}

// A sweep that failed with a long error, or that found an order with a nonsensical due time, is recorded too.
func TestSweep_EncodeBoundsTheRecord(t *testing.T) {
	m, err := Sweep{StartedAt: time.Unix(1, 0), Holder: strings.Repeat("h", 10_000), Error: strings.Repeat("ä", 1<<20),
		OldestDue: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
		Failures:  slices.Repeat([]Failure{{Error: strings.Repeat("x", 1000)}}, 100)}.Encode()
	must.That(t, err == nil && len(m.Value) <= 2000+MaxFailures*600, "%d bytes, %v", len(m.Value), err)
	s, err := DecodeSweep(m.Value)
	expect.That(t, err == nil && strings.HasPrefix(s.Error, "ää") && !strings.Contains(s.Error, "\ufffd") && s.OldestDue.IsZero(), "%+v, %v", s, err)
}

func TestDecodeSweep_RefusesOtherRecords(t *testing.T) {
	for _, value := range []string{"", "[]", "{}", `{"found":1}`, `{"started_at":"noon"}`, `{"path":"sweep","until":"2026-11-20T12:00:00Z"}`} {
		s, err := DecodeSweep([]byte(value))
		expect.That(t, err != nil, "%q is decoded as %+v", value, s)
	}
}

func TestAnnouncement_IsARecordOfTheControlTopic(t *testing.T) {
	p := Announcement{Name: "compensator@host:17:9464", Version: "v1.2.0", Ended: true, EverySeconds: 60}
	m := must.Get(p.Encode())(t)
	var got Announcement
	err := json.Unmarshal(m.Value, &got)
	must.That(t, err == nil && string(m.Key) == KeyProcess, "%s %s, %v", m.Key, m.Value, err)
	expect.Same(t, got, p, "the announcement")
}
