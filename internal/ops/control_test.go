package ops

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// controlLog is a control topic.
type controlLog struct {
	testkit.Log
	first, end int64
	read       int           // records that were read
	hang       chan struct{} // if set, Bounds waits for it
	before     func()        // what another operator does before the next append; nil: nothing
}

var control = testkit.TopicPartition{Topic: "control"}

func (l *controlLog) Bounds(context.Context, string, int) (first, end int64, err error) {
	if l.hang != nil {
		<-l.hang
	}
	return l.first, l.end, nil
}

func (l *controlLog) Read(ctx context.Context, at wire.Position) (wire.Fetched, error) {
	f, err := l.Log.Read(ctx, at)
	l.read += len(f.Records)
	return f, err
}

func (l *controlLog) Append(_ context.Context, _ string, _ int, messages []wire.Message) (time.Time, error) {
	if other := l.before; other != nil {
		l.before = nil
		other()
	}
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
		case wire.Sweep:
			m, err = r.Encode()
		case wire.Pause:
			m, err = r.Encode()
		case wire.Process:
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
func sweepAt(minutes int) wire.Sweep {
	return wire.Sweep{StartedAt: noon.Add(time.Duration(minutes) * time.Minute), Holder: "shop/17", Why: wire.SweepPeriod, Lock: "held"}
}

// mustRead reads the topic and returns the minutes after noon of the sweeps, and the
// reasons of the pauses.
func mustRead(t *testing.T, c *Control) string {
	t.Helper()
	s := must.Get(c.Read(t.Context(), time.Now()))(t)
	all := "sweeps"
	for _, sweep := range s.Sweeps {
		all += fmt.Sprint(" ", sweep.StartedAt.Sub(noon).Minutes())
	}
	all += ", pauses"
	for _, p := range s.Pauses {
		all += " " + p.Reason
	}
	return all
}

func wantControl(t *testing.T, what, got, want string) {
	t.Helper()
	expect.Equal(t, got, want, "%s", what)
}

func TestControl_ReadsEachRecordOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pause := func(reason string, lasting time.Duration) wire.Pause {
			return wire.Pause{Path: orderclose.PathSweep, CreatedAt: time.Now(), Until: time.Now().Add(lasting), Reason: reason}
		}
		log := &controlLog{}
		c := NewControl(log, "control")
		wantControl(t, "an empty topic", mustRead(t, c), "sweeps, pauses")
		for range 5000 {
			log.put(t, probe)
		}
		log.put(t, sweepAt(0), notice, pause("one", time.Hour), sweepAt(60), probe)
		wantControl(t, "a long topic", mustRead(t, c), "sweeps 60 0, pauses one")
		log.put(t, notice, sweepAt(120))
		must.Get(c.WritePauses(t.Context(), pause("two", time.Hour)))(t)
		wantControl(t, "three more", mustRead(t, c), "sweeps 120 60 0, pauses two")
		time.Sleep(time.Hour)
		wantControl(t, "an hour later", mustRead(t, c), "sweeps 120 60 0, pauses")
		log.put(t, pause("three", time.Hour), pause("three", 0))
		wantControl(t, "after a resume", mustRead(t, c), "sweeps 120 60 0, pauses")
		expect.That(t, log.read == int(log.end), "it read %d records of %d", log.read, log.end)
	})
}

func TestControl_PauseEndsADayAfterItsRecordAtTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		c := NewControl(log, "control")
		year := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
		log.put(t, wire.Pause{Path: orderclose.PathSweep, CreatedAt: time.Now(), Until: year, Reason: "long"},
			wire.Pause{Path: orderclose.PathPipeline, Until: year, Reason: "without a start"})
		time.Sleep(wire.MaxPause - time.Second)
		wantControl(t, "within a day", mustRead(t, c), "sweeps, pauses without a start long")
		time.Sleep(time.Second)
		wantControl(t, "after a day", mustRead(t, c), "sweeps, pauses")
	})
}

// on returns the pauses of closing as a process reads them that starts now.
func (l *controlLog) on(t *testing.T) (on []string) {
	t.Helper()
	for _, p := range must.Get(NewControl(l, "control").Pauses(t.Context()))(t) {
		on = append(on, wire.PathName(p.Path)+" "+p.Reason)
	}
	return on
}

func TestControl_APauseEndsNoOtherEarlierUnlessItReplacesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		first, second := NewControl(log, "control"), NewControl(log, "control")
		pipeline := []orderclose.Path{orderclose.PathPipeline}
		must.Get(first.Pause(t.Context(), pipeline, "", 4*time.Hour, "INC-1", false))(t)
		time.Sleep(time.Minute)
		for _, paths := range [][]orderclose.Path{pipeline, orderclose.Paths()} {
			err := expect.Err(second.Pause(t.Context(), paths, "", time.Minute, "restart", false))
			expect.Is(t, err, wire.ErrEndsLater, "a shorter pause")
			expect.Says(t, err, `closes by pipeline of all orders until 2000-01-01T04:00:00Z: "INC-1"`, "a shorter pause")
		}
		expect.Same(t, log.on(t), []string{"pipeline INC-1"}, "pauses after two refusals")
		must.Get(second.Pause(t.Context(), []orderclose.Path{orderclose.PathSweep}, "", time.Minute, "sweeps", false))(t)
		must.Get(second.Pause(t.Context(), pipeline, "", 5*time.Hour, "longer", false))(t)
		expect.Same(t, log.on(t), []string{"pipeline longer", "sweep sweeps"}, "pauses after a longer one")
		ended := must.Get(second.Pause(t.Context(), orderclose.Paths(), "", 2*time.Minute, "replaced", true))(t)
		expect.That(t, len(ended) == 1 && ended[0].Reason == "longer", "replaced %+v", ended)
		expect.Same(t, log.on(t), []string{"pipeline replaced", "sweep replaced", "on-read replaced"}, "pauses after a replacement")
	})
}

// Another operator acts after the first one has read the topic, and before the record of the first one is appended.
func TestControl_APauseThatWasNotSeenStays(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, c *Control) error{
		"pause": func(t *testing.T, c *Control) error {
			return expect.Err(c.Pause(t.Context(), orderclose.Paths(), "", time.Hour, "short", false))
		},
		"resume": func(t *testing.T, c *Control) error {
			ended, err := c.Resume(t.Context(), orderclose.Paths(), "")
			expect.That(t, len(ended) == 3 && ended[0].Reason == "before", "the resume says that it has ended %+v", ended)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &controlLog{}
				c := NewControl(log, "control")
				must.Get(c.Pause(t.Context(), orderclose.Paths(), "", time.Minute, "before", false))(t)
				log.before = func() {
					must.Get(NewControl(log, "control").Pause(t.Context(), []orderclose.Path{orderclose.PathSweep}, "", 4*time.Hour, "unseen", false))(t)
				}
				err := act(t, c)
				want := []string{"sweep unseen"}
				if name == "pause" {
					expect.Is(t, err, wire.ErrEndsLater, "the pause")
					want = []string{"pipeline short", "sweep unseen", "on-read short"}
				}
				expect.Same(t, log.on(t), want, "pauses")
			})
		})
	}
}

// Processes judge a pause by the time of the brokers, which appended it.
func TestControl_ResumeByAClockThatIsAheadEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		c := NewControl(log, "control")
		log.put(t, wire.Pause{Path: orderclose.PathSweep, CreatedAt: time.Now(), Until: time.Now().Add(10 * time.Minute), Reason: "one"})
		time.Sleep(30 * time.Minute)
		wantControl(t, "by a clock 25 minutes ahead", mustRead(t, c), "sweeps, pauses")
		if ended, err := c.Resume(t.Context(), orderclose.Paths(), ""); err != nil || len(ended) != 1 || log.end != 2 {
			t.Errorf("ended %v with %d records, %v", ended, log.end-1, err)
		}
		if ended, err := c.Resume(t.Context(), orderclose.Paths(), ""); err != nil || len(ended) != 0 {
			t.Errorf("ended %v once more, %v", ended, err)
		}
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
				control := NewControl(log, "control")
				for range c.before {
					log.put(t, probe)
				}
				log.put(t, sweepAt(0), notice, wire.Pause{Path: orderclose.PathSweep, CreatedAt: time.Now(), Until: time.Now().Add(time.Hour), Reason: "one"})
				wantControl(t, "before", mustRead(t, control), "sweeps 0, pauses one")
				log.Recreate(testkit.TopicPartition{Topic: "control"})
				log.end = 0
				for range c.records {
					log.put(t, probe)
				}
				log.put(t, sweepAt(60))
				wantControl(t, "after", mustRead(t, control), "sweeps 60, pauses")
			})
		})
	}
}

// Retention deleted records that were not read yet.
func TestControl_StartsAgainWhereTheLogBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		c := NewControl(log, "control")
		log.put(t, sweepAt(0), sweepAt(60))
		wantControl(t, "before", mustRead(t, c), "sweeps 60 0, pauses")
		log.put(t, sweepAt(120), sweepAt(180))
		log.first = 3
		wantControl(t, "after", mustRead(t, c), "sweeps 180, pauses")
	})
}

func TestControl_SkipsWhatItCannotDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		for _, key := range []string{wire.KeyPause, wire.KeySweep, "lost", "unknown", ""} {
			log.put(t, wire.Message{Key: []byte(key), Value: []byte("{")}, wire.Message{Key: []byte(key)})
		}
		log.put(t, sweepAt(0))
		wantControl(t, "behind broken records", mustRead(t, NewControl(log, "control")), "sweeps 0, pauses")
	})
}

// A sweep whose append got no answer is appended again, maybe behind a later sweep.
func TestControl_ASweepCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := sweepAt(0)
		other.Holder = "shop/18"
		log := &controlLog{}
		log.put(t, sweepAt(60), sweepAt(0), other, sweepAt(60))
		wantControl(t, "repeated", mustRead(t, NewControl(log, "control")), "sweeps 60 0 0, pauses")
	})
}

func TestControl_RemembersTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		for i := range 3 * controlKeeps {
			log.put(t, sweepAt(i))
		}
		c := NewControl(log, "control")
		s, err := c.Read(t.Context(), noon)
		if err != nil || len(s.Sweeps) != controlKeeps {
			t.Fatalf("%d sweeps, %v", len(s.Sweeps), err)
		}
		last := 3*controlKeeps - 1
		if diff := cmp.Diff(sweepAt(last), s.Sweeps[0]); diff != "" {
			t.Error(diff)
		}
	})
}

// A Read that waits for another one ends with its own context.
func TestControl_AReadDoesNotWaitForAnotherForLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{hang: make(chan struct{})}
		c := NewControl(log, "control")
		first := make(chan error)
		go func() { _, err := c.Read(context.Background(), noon); first <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Read(ctx, noon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it returns %v", err)
		}
		close(log.hang)
		expect.NoError(t, <-first)
		wantControl(t, "after that", mustRead(t, c), "sweeps, pauses")
	})
}

// The closers of a service, or of a Store of the program, obey the control topic, whether the process has a database or not.
func TestPipeline_KeepsPausesWhereItsClosersReadThem(t *testing.T) {
	service := config.Default()
	service.Closer.Kind = config.KindHTTP
	db, topic := &store.Store{}, &Control{}
	for i, c := range []struct {
		p    Pipeline
		want Pauser
		err  error
	}{
		{Pipeline{Config: config.Default(), Store: db, Control: topic}, db, nil},
		{Pipeline{Config: config.Default(), Control: topic}, nil, ErrNoDatabase},
		{Pipeline{Config: service, Store: db, Control: topic}, topic, nil},
		{Pipeline{Config: config.Default(), Store: db, Control: topic, OwnStore: true}, topic, nil},
		{Pipeline{Config: config.Default(), Store: db, OwnStore: true}, nil, ErrNoKafka},
	} {
		kept, err := c.p.Pauser()
		expect.That(t, kept == c.want && errors.Is(err, c.err), "case %d: pauses are in %T, %v; want %T, %v", i, kept, err, c.want, c.err)
	}
}
