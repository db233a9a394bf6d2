package ops

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// withRule are delays that have a rule too.
func withRule(p Process, delay time.Duration) Process {
	p.Delays["rule payment card"] = delay.Milliseconds()
	return p
}

// recorded are delays some minutes after noon: the default, and that of the category virtual; 0: it is
// not listed.
func recorded(minutes int, general, virtual time.Duration) Process {
	p := Process{Announced: noon.Add(time.Duration(minutes) * time.Minute)}
	p.Name, p.File, p.Delays = "compensator@shop:17", fmt.Sprint("file-", minutes), map[string]int64{"": general.Milliseconds()}
	if virtual > 0 {
		p.Delays["virtual"] = virtual.Milliseconds()
	}
	return p
}

func TestDelayChanges_CompareRecordsThatFollowEachOther(t *testing.T) {
	const half = 30 * time.Minute
	got := ""
	for _, c := range delayChanges([]Process{ // the newest first
		recorded(6, time.Hour, 0), recorded(5, half, 0), recorded(4, half, time.Second), recorded(3, half, time.Second),
		recorded(2, half, 5*time.Minute), recorded(1, half, 0),
	}) {
		got += fmt.Sprintf("%s %q %s-%s\n", c.File, c.Category, c.From, c.To)
	}
	want := `file-6 "" 30m-1h
file-5 "virtual" 1s-30m
file-3 "virtual" 5m-1s
file-2 "virtual" 30m-5m
`
	expect.Same(t, got, want, "changes")
	all := delayChanges(nil)
	expect.That(t, len(all) <= 0, "%+v", all)
}

func TestJudge_ADelayThatFellIsAProblemForADay(t *testing.T) {
	const half = 30 * time.Minute
	fell := []Process{recorded(1, half, time.Second), recorded(0, half, half)}
	rose := append([]Process{recorded(4, half, half)}, fell...)
	at := func(minutes float64) time.Time { return noon.Add(time.Duration(minutes * float64(time.Minute))) }
	for what, row := range map[string]struct {
		records  []Process
		now      time.Time
		severity Severity // "": no problem
		detail   string
	}{
		"no record":        {nil, noon, "", ""},
		"the first record": {fell[1:], noon, "", ""},
		"a fall": {fell, at(2), Urgent, "virtual: from 30m to 1s, by the file file-1; if that is a mistake: orderclose " +
			"pause --category virtual"},
		"an hour later":      {fell, at(61), Today, "virtual: from 30m to 1s"},
		"almost a day later": {fell, at(24 * 60), Today, "virtual: from 30m to 1s"},
		"a day later":        {fell, at(24*60 + 1), "", ""},
		"it rose, an order is not due": {rose, at(4).Add(time.Second), Urgent,
			"orderclose postpone --category virtual --created-from 2026-11-20T12:00:55.000Z --created-before 2026-11-20T12:04:00.000Z --due-before " +
				"2026-11-20T12:04:01.000Z --by 29m59s --plan plan.jsonl"},
		"it rose":           {rose, at(5), Healed, "until 2026-11-20T12:04:00.000Z"},
		"by less than half": {[]Process{recorded(1, half, 16*time.Minute), recorded(0, half, half)}, at(2), "", ""},
		"by half":           {[]Process{recorded(1, half, 15*time.Minute), recorded(0, half, half)}, at(2), Urgent, "from 30m to 15m"},
		"by half in two steps": {[]Process{recorded(2, half, 14*time.Minute), recorded(1, half, 20*time.Minute), recorded(0, half, half)}, at(3),
			Urgent, "from 30m to 14m"},
		"a part rose, and fell again": {append([]Process{recorded(5, half, time.Minute)}, rose...), at(6), Urgent, "from 30m to 1m, by the file file-5; if"},
		"the default": {[]Process{recorded(1, time.Minute, half), recorded(0, half, half)}, at(2), Urgent,
			"default: from 30m to 1m, by the file file-1; if that is a mistake: orderclose pause --for"},
		"a rule": {[]Process{withRule(recorded(1, half, half), time.Minute), withRule(recorded(0, half, half), half)}, at(2), Urgent,
			"rule payment card: from 30m to 1m, by the file file-1; if that is a mistake: orderclose pause --for 30m --reason WHY, correct the file, and move"},
		"a rule that rose": {[]Process{withRule(recorded(4, half, half), half), withRule(recorded(1, half, half), time.Minute),
			withRule(recorded(0, half, half), half)}, at(6), Healed, "until 2026-11-20T12:04:00.000Z; move the orders of the rule"},
		"a category is listed": {[]Process{recorded(1, half, time.Minute), recorded(0, half, 0)}, at(2), Urgent,
			"virtual: from 30m to 1m, by the file file-1 (listed since then, it had the default's); if that"},
		"a category is deleted": {[]Process{recorded(1, time.Minute, 0), recorded(0, time.Minute, half)}, at(2), Urgent,
			"virtual: from 30m to 1m, by the file file-1 (no longer listed, it has the default's); if that"},
	} {
		v := told{AskSweeps: knownAs(NewSweeps(ControlState{Delays: row.records}, 0))}.judge(row.now)
		if row.severity == "" {
			expect.That(t, len(v.Problems) == 0, "%s: %+v", what, v.Problems)
			continue
		}
		if len(v.Problems) != 1 || v.Problems[0].Kind != DelayFell || v.Problems[0].Severity != row.severity || !strings.Contains(v.Problems[0].Detail, row.detail) {
			t.Errorf("%s: %+v, want %s %q", what, v.Problems, row.severity, row.detail)
			continue
		}
		expect.That(t, v.Problems[0].Process == "compensator@shop:17" && !v.Problems[0].Since.IsZero(), "%s: %+v", what, v.Problems[0])
	}
}

// A compensator repeats its delays each hour. That others have another file must not look like a change each hour.
func TestControl_HasTheDelaysThatAreNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &controlLog{}
		c := NewControl(log, "control")
		begin := time.Now()
		says := func(name string, delay time.Duration) {
			t.Helper()
			log.put(t, wire.Process{Name: name, Delays: map[string]int64{"": delay.Milliseconds()}})
		}
		want := func(what string, all ...string) {
			t.Helper()
			for _, reader := range []*Control{c, NewControl(log, "control")} {
				s := must.Get(reader.Read(t.Context(), time.Now()))(t)
				var got []string
				for _, d := range s.Delays {
					got = append(got, fmt.Sprintf("%s %v after %v", d.Name, d.Delay(""), d.Announced.Sub(begin)))
				}
				diff := cmp.Diff(all, got)
				expect.That(t, diff == "", "%s (-want +got):\n%s", what, diff)
			}
		}
		says("a", time.Hour)
		says("a", time.Hour)
		says("b", time.Hour)
		for _, value := range []string{"", "{", "{}", `{"process":"c","delays_ms":{"":"30m"}}`, `{"process":"c","delays_ms":{"virtual":1}}`} {
			log.put(t, wire.Message{Key: []byte(wire.KeyProcess), Value: []byte(value)})
		}
		// the last one of an older version
		log.put(t, sweepAt(0), wire.Process{Name: "relay"}, wire.Message{Key: []byte("delays"), Value: []byte(`{"default_ms":1000,"process":"a"}`)})
		want("two processes with the same delays", "a 1h0m0s after 0s")
		time.Sleep(time.Minute)
		says("a", time.Minute)
		says("b", time.Minute)
		want("both read another file", "a 1m0s after 1m0s", "a 1h0m0s after 0s")
		says("b", time.Second)
		for range 100 {
			time.Sleep(time.Hour)
			says("a", time.Minute)
			says("b", time.Second)
			want("they have different files", "b 1s after 1m0s", "a 1m0s after 1m0s", "a 1h0m0s after 0s")
		}
		says("d", time.Second)
		says("e", 2*time.Second)
		want("a start with another file", "e 2s after 100h1m0s", "b 1s after 1m0s", "a 1m0s after 1m0s", "a 1h0m0s after 0s")
	})
}

func TestExplainOrder_ComparesTheRowWithTheRules(t *testing.T) {
	d := orderclose.Delays{Default: time.Hour, ByCategory: map[string]time.Duration{"virtual": 10 * time.Minute}, Rules: []orderclose.Rule{
		{Match: orderclose.Match{Attributes: map[string][]string{"pay": {"bank"}}}, Never: true},
		{Match: orderclose.Match{Categories: []string{"virtual"}, Attributes: map[string][]string{"vip": {"1"}}}, Grace: time.Minute},
	}}
	row := func(category string, due time.Time, attributes map[string]any) store.OrderRow {
		return store.OrderRow{Category: category, CreatedAt: made, Due: due, Attributes: attributes}
	}
	bank, vip := map[string]any{"pay": "bank", "vip": 0}, map[string]any{"pay": "card", "vip": 1}
	for what, c := range map[string]struct {
		row     store.OrderRow
		rule    string
		differs bool
	}{
		"as its category":           {row("virtual", made.Add(10*time.Minute), nil), "", false},
		"rounded to a second":       {row("virtual", made.Add(10*time.Minute+time.Second), vip), "delays.rules[1]", false},
		"another due time":          {row("virtual", made.Add(11*time.Minute), vip), "delays.rules[1]", true},
		"no category":               {row("", made.Add(time.Hour), vip), "", false},
		"never, and so is its rule": {row("", orderclose.NeverDue, bank), "delays.rules[0]", false},
		"never, and its rule not":   {row("", orderclose.NeverDue, vip), "", true},
		"its rule is never":         {row("", made.Add(time.Hour), bank), "delays.rules[0]", true},
	} {
		got := ExplainOrder(d, c.row)
		expect.That(t, got.Rule == c.rule && got.Differs == c.differs, "%s: %+v, want %+v", what, got, c)
	}
	if got := ExplainOrder(d, store.OrderRow{Due: made}); got != nil {
		t.Errorf("it is not known when the order was created: %+v", got)
	}
}
