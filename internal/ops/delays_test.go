package ops

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/wire"
)

// recorded are delays some minutes after noon: the default, and that of the category virtual; 0: it is
// not listed.
func recorded(minutes int, general, virtual time.Duration) wire.Delays {
	d := wire.Delays{Default: general.Milliseconds(), File: fmt.Sprint("file-", minutes), Process: "compensator@shop:17"}
	if virtual > 0 {
		d.Categories = map[string]int64{"virtual": virtual.Milliseconds()}
	}
	d.At = noon.Add(time.Duration(minutes) * time.Minute)
	return d
}

func TestDelayChanges_CompareRecordsThatFollowEachOther(t *testing.T) {
	const half = 30 * time.Minute
	got := ""
	for _, c := range delayChanges([]wire.Delays{ // the newest first
		recorded(6, time.Hour, 0), recorded(5, half, 0), recorded(4, half, time.Second), recorded(3, half, time.Second), recorded(2, half, 5*time.Minute), recorded(1, half, 0),
	}) {
		got += fmt.Sprintf("%s %q %s-%s\n", c.File, c.Category, c.From, c.To)
	}
	want := `file-6 "" 30m-1h
file-5 "virtual" 1s-30m
file-3 "virtual" 5m-1s
file-2 "virtual" 30m-5m
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if all := delayChanges(nil); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}

func TestJudge_ADelayThatFellIsAProblemForADay(t *testing.T) {
	const half = 30 * time.Minute
	fell := []wire.Delays{recorded(1, half, time.Second), recorded(0, half, half)}
	rose := append([]wire.Delays{recorded(4, half, half)}, fell...)
	at := func(minutes float64) time.Time { return noon.Add(time.Duration(minutes * float64(time.Minute))) }
	for what, row := range map[string]struct {
		records  []wire.Delays
		now      time.Time
		severity Severity // "": no problem
		detail   string
	}{
		"no record":                    {nil, noon, "", ""},
		"the first record":             {fell[1:], noon, "", ""},
		"a fall":                       {fell, at(2), Today, "virtual: from 30m to 1s, by the file file-1; if that is a mistake: orderclose pause --category virtual"},
		"almost a day later":           {fell, at(24 * 60), Today, "virtual: from 30m to 1s"},
		"a day later":                  {fell, at(24*60 + 1), "", ""},
		"it rose, an order is not due": {rose, at(4).Add(time.Second), Today, "orderclose postpone --category virtual --created-from 2026-11-20T12:00:55.000Z --created-before 2026-11-20T12:04:00.000Z --due-before 2026-11-20T12:04:01.000Z --by 29m59s --plan plan.jsonl"},
		"it rose":                      {rose, at(5), Healed, "until 2026-11-20T12:04:00.000Z"},
		"by less than half":            {[]wire.Delays{recorded(1, half, 16*time.Minute), recorded(0, half, half)}, at(2), "", ""},
		"by half":                      {[]wire.Delays{recorded(1, half, 15*time.Minute), recorded(0, half, half)}, at(2), Today, "from 30m to 15m"},
		"by half in two steps":         {[]wire.Delays{recorded(2, half, 14*time.Minute), recorded(1, half, 20*time.Minute), recorded(0, half, half)}, at(3), Today, "from 30m to 14m"},
		"a part rose, and fell again":  {append([]wire.Delays{recorded(5, half, time.Minute)}, rose...), at(6), Today, "from 30m to 1m, by the file file-5; if"},
		"the default":                  {[]wire.Delays{recorded(1, time.Minute, half), recorded(0, half, half)}, at(2), Today, "default: from 30m to 1m, by the file file-1; if that is a mistake: orderclose pause --for"},
		"a category is listed":         {[]wire.Delays{recorded(1, half, time.Minute), recorded(0, half, 0)}, at(2), Today, "virtual: from 30m to 1m"},
	} {
		v := Judge(Facts{Now: row.now, Sweeps: NewSweeps(ControlState{Delays: row.records}, 0)})
		if row.severity == "" {
			if len(v.Problems) > 0 {
				t.Errorf("%s: %+v", what, v.Problems)
			}
			continue
		}
		if len(v.Problems) != 1 || v.Problems[0].Kind != DelayFell || v.Problems[0].Severity != row.severity || !strings.Contains(v.Problems[0].Detail, row.detail) {
			t.Errorf("%s: %+v, want %s %q", what, v.Problems, row.severity, row.detail)
			continue
		}
		if v.Problems[0].Process != "compensator@shop:17" || v.Problems[0].Since.IsZero() {
			t.Errorf("%s: %+v", what, v.Problems[0])
		}
	}
}

func TestControl_HasTheDelaysByTheBrokersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		c := NewControl(log, "control")
		begin := time.Now().UTC()
		one := wire.Delays{Default: 1000, Process: "a"}
		two := wire.Delays{Default: 2000, Process: "b"}
		log.put(t, one)
		time.Sleep(time.Minute)
		for _, value := range []string{"", "{", "{}", `{"default_ms":"30m"}`} {
			log.put(t, wire.Message{Key: []byte(wire.KeyDelays), Value: []byte(value)})
		}
		log.put(t, sweepAt(0), two)
		s, err := c.Read(t.Context(), time.Now())
		one.At, two.At = begin, begin.Add(time.Minute)
		want := []wire.Delays{two, one}
		if diff := cmp.Diff(want, s.Delays); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
