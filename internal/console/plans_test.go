package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/compensator"
	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/overdue"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

// addDeadLetter appends a dead letter of the closer.
func (r *rig) addDeadLetter(id, cause string, due time.Time) {
	r.t.Helper()
	m := must.Get(wire.Record{Order: orderclose.Order{ID: id, CreatedAt: due.Add(-time.Hour), Due: due}, Release: due}.Encode())(r.t)
	m.Topic = r.cfg.Topics.Close
	must.Get(r.kafka.Append(r.t.Context(), r.cfg.Topics.DeadLetter, 0, []wire.Message{wire.DeadLetter(m, "closer", cause, "closing it failed")}))(r.t)
}

// plan makes a plan by the form, waits until it has been made, and returns its path and its page.
func (r *rig) plan(form url.Values) (path, page string) {
	r.t.Helper()
	res, body := r.do(http.MethodPost, "/plans", "en", form)
	must.That(r.t, res.StatusCode == http.StatusSeeOther, "%v: %s\n%s", form, res.Status, body)
	return res.Header.Get("Location"), r.settled(res.Header.Get("Location"))
}

// settled waits until a plan is not busy, and returns its page.
func (r *rig) settled(path string) string {
	r.t.Helper()
	for range 300 {
		page := r.open(path)
		if !strings.Contains(page, `data-state="planning"`) && !strings.Contains(page, `data-state="running"`) {
			return page
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.t.Fatal("the plan does not end")
	return ""
}

func (r *rig) confirm(path string) string {
	r.t.Helper()
	res, body := r.do(http.MethodPost, path+"/confirm", "en", url.Values{})
	must.That(r.t, res.StatusCode == http.StatusSeeOther, "%s\n%s", res.Status, body)
	return r.settled(path)
}

func TestPlans_RedriveAndDiscardDeadLetters(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.addDeadLetter("a", "failed", time.Now().Add(-time.Minute))
	}
	r.addDeadLetter("b", "not_found", time.Now().Add(-time.Minute))
	path, page := r.plan(url.Values{"kind": {"redrive"}, "cause": {"failed"}})
	contains(t, page, `data-state="planned"`, "failed 3", "To topic delay_1m", `<form id="confirm"`)
	r.addDeadLetter("later", "failed", time.Now())
	contains(t, r.confirm(path), `data-state="done"`, `<dd id="done">3</dd>`)

	_, page = r.plan(url.Values{"kind": {"redrive"}, "cause": {"nothing"}})
	contains(t, page, `data-state="nothing"`, `<form id="again"`)
	path, page = r.plan(url.Values{"kind": {"discard"}, "at": {"0/3"}})
	contains(t, page, "not_found 1")
	contains(t, r.confirm(path), `<dd id="done">1</dd>`)

	for _, form := range []url.Values{{"kind": {"discard"}}, {"kind": {"redrive"}, "at": {"x"}}, {"kind": {"rm"}}, {}, {"kind": {"replay"}},
		{"kind": {"redrive"}, "since": {"soon"}}, {"kind": {"sweep"}}} {
		if res, _ := r.do(http.MethodPost, "/plans", "en", form); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%v: %s", form, res.Status)
		}
	}
	if res, _ := r.do(http.MethodGet, "/plans/nothing", "en", nil); res.StatusCode != http.StatusNotFound {
		t.Error(res.Status)
	}
}

// Two operators plan the same. The second reads why nothing was left for it, and both are in the list.
func TestPlans_TheSecondOfTwoSaysThatAnotherWasFirst(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Settings.Operators = []string{"ann", "eve"} })
	contains(t, r.open("/plans"), `id="no-plans"`)
	r.addDeadLetter("a", "failed", time.Now())
	first, _ := r.plan(url.Values{"kind": {"discard"}, "cause": {"failed"}})
	r.user = "eve"
	second, page := r.plan(url.Values{"kind": {"discard"}, "cause": {"failed"}})
	contains(t, page, "Discard them (1)")
	r.user = "ann"
	if page := r.confirm(first); strings.Contains(page, `id="by-others"`) {
		t.Errorf("the first was not alone:\n%s", page)
	}
	r.user = "eve"
	contains(t, r.confirm(second), `<dd id="done">0</dd>`, `id="by-others"`, "1 of the planned dead letters were handled by another action")
	page = r.open("/plans")
	contains(t, page, "<bdi>ann</bdi>", "<bdi>eve</bdi>", `Cause: <bdi>failed</bdi>`, "it is done")
	expect.That(t, strings.Index(page, "<bdi>eve</bdi></td>") <= strings.Index(page, "<bdi>ann</bdi></td>"), "the list does not begin with the newest")
	var all []plan
	code := r.json(http.MethodGet, "/api/v1/plans", "", &all)
	expect.That(t, code == http.StatusOK && len(all) == 2 && all[1].Handled == 1 && all[0].Planned == 1 && !all[0].Ended.IsZero(), "%d %+v", code, all)
}

func TestPlans_ASweepIsADryRunFirst(t *testing.T) {
	swept := 0
	r := newRig(t, func(o *Options) {
		o.Sweep = func(_ context.Context, dryRun bool, _ func(compensator.Report)) (compensator.Report, error) {
			if !dryRun {
				swept++
				return compensator.Report{Found: 2, Closed: 1, Failed: 1, Failures: []compensator.Failure{{OrderID: "<b>", Error: "no stock"}}}, errors.New("1 failed")
			}
			return compensator.Report{Found: 2, DryRun: true}, nil
		}
	})
	contains(t, r.open("/sweeps"), `<form id="plan-sweep"`)
	path, page := r.plan(url.Values{"kind": {"sweep"}})
	contains(t, page, `data-state="planned"`, "<dt>Overdue and unpaid</dt><dd>2</dd>")
	expect.Equal(t, swept, 0, "the plan has swept")
	contains(t, r.confirm(path), `data-state="failed"`, "1 failed", "&lt;b&gt;")
}

var ann = access.Identity{Name: "ann", Role: access.Operator, MayAct: true}

// testPlans has a clock of its own, and no server.
func testPlans(t *testing.T, now *time.Time) *plans {
	return &plans{ctx: t.Context(), now: func() time.Time { return *now }, audit: func(plan) {}, byID: map[string]*plan{}}
}

func TestPlans_CanBeConfirmedOnceInTimeByTheirMaker(t *testing.T) {
	now := time.Now()
	s := testPlans(t, &now)
	ready := func(context.Context, progress) (prepared, error) {
		return prepared{summary: 1, run: func(context.Context, progress) (any, int64, error) { return 2, 0, nil }}, nil
	}
	p, err := s.add("sweep", ann, nil, ready)
	must.That(t, err == nil && p.State == planning, "%v %v", p, err)
	s.running.Wait()
	if _, err := s.confirm(p.ID, access.Identity{Name: "bob"}); !errors.Is(err, errNotYourPlan) {
		t.Error(err)
	}
	now = now.Add(planLifetime)
	if _, err := s.confirm(p.ID, ann); !errors.Is(err, errPlanExpired) {
		t.Error(err)
	}
	p, _ = s.get(p.ID)
	expect.That(t, p.State == expired, "%v", p.State)
	now = now.Add(-time.Second)
	expect.NoError(t, expect.Err(s.confirm(p.ID, ann)))
	s.running.Wait()
	p, _ = s.get(p.ID)
	expect.That(t, p.State == done && p.Result == 2, "%+v", p)
	if _, err := s.confirm(p.ID, ann); !errors.Is(err, errNotPlanned) {
		t.Error(err)
	}
	now = now.Add(keepPlans)
	expect.NoError(t, expect.Err(s.add("sweep", ann, nil, ready)))
	if _, err := s.get(p.ID); !errors.Is(err, errNoPlan) {
		t.Error(err)
	}
	s.running.Wait()
}

func TestPlans_AreMadeAFewAtATime(t *testing.T) {
	now := time.Now()
	s := testPlans(t, &now)
	release := make(chan struct{})
	for range maxBusy {
		must.Get(s.add("sweep", ann, nil, func(context.Context, progress) (prepared, error) {
			<-release
			return prepared{}, errors.New("no")
		}))(t)
	}
	if _, err := s.add("sweep", ann, nil, nil); !errors.Is(err, errPlansAreBusy) {
		t.Error(err)
	}
	if _, err := s.add(kindPause, ann, nil, func(context.Context, progress) (prepared, error) { return prepared{}, errors.New("no") }); err != nil {
		t.Errorf("a pause waits for long plans: %v", err)
	}
	close(release)
	s.running.Wait()
}

func TestPlans_PauseAndResume(t *testing.T) {
	r := newRig(t)
	path, page := r.plan(url.Values{"kind": {"pause"}, "for": {"30m"}, "reason": {"<b>maintenance</b>"}, "category": {""}})
	contains(t, page, `data-state="planned"`, "<dd>all orders</dd>", `id="effect"`)
	contains(t, r.confirm(path), `data-state="done"`, `<dd id="paused">1</dd>`)
	contains(t, r.open("/delays"), "&lt;b&gt;maintenance&lt;/b&gt;", `<form id="plan-resume"`)
	shorter := url.Values{"kind": {"pause"}, "for": {"1m"}, "reason": {"restart"}}
	_, page = r.plan(shorter)
	contains(t, page, `data-state="failed"`, "all orders until 2", "&lt;b&gt;maintenance&lt;/b&gt;", "Replace in the console")
	shorter.Set("replace", "1")
	path, page = r.plan(shorter)
	contains(t, page, `data-state="planned"`, `<dd id="ended"><p>all orders, 2`)
	contains(t, r.confirm(path), `data-state="done"`, `<dd id="ended"><p>all orders, 2`)
	contains(t, r.open("/delays"), "restart", `<form id="plan-resume"`)
	contains(t, r.open("/"), `data-kind="closing_paused"`)
	path, _ = r.plan(url.Values{"kind": {"resume"}})
	contains(t, r.confirm(path), `<dd id="paused">0</dd>`, `<dd id="ended"><p>all orders, 2`, "restart")
	contains(t, r.open("/delays"), `id="no-pause"`)
	_, page = r.plan(url.Values{"kind": {"resume"}})
	contains(t, page, `data-state="nothing"`)
	_, page = r.plan(url.Values{"kind": {"pause"}, "for": {"30m"}, "reason": {"x"}, "category": {"tickte"}})
	contains(t, page, `data-state="failed"`, "tickte: neither topics.yaml")
	for _, form := range []url.Values{{"for": {"25h"}, "reason": {"x"}}, {"for": {"1m"}}} {
		form.Set("kind", "pause")
		res, _ := r.do(http.MethodPost, "/plans", "en", form)
		expect.That(t, res.StatusCode == http.StatusBadRequest, "%v: %s", form, res.Status)
	}
}

func TestActions_AreForOperatorsOnly(t *testing.T) {
	r := newRig(t)
	redrive := url.Values{"kind": {"redrive"}}
	path, _ := r.plan(redrive)
	r.user = "bob"
	for _, page := range []string{"/", "/order", "/sweeps", "/delays", path} {
		if body := r.open(page); strings.Contains(body, `action="/plans"`) || strings.Contains(body, `id="confirm"`) {
			t.Errorf("%s offers an action to a viewer:\n%s", page, body)
		}
	}
	for _, action := range []string{"/plans", path + "/confirm"} {
		res, _ := r.do(http.MethodPost, action, "en", redrive)
		expect.That(t, res.StatusCode == http.StatusForbidden, "%s: %s", action, res.Status)
	}
	var e errorAnswer
	if code := r.json(http.MethodPost, "/api/v1/plans", `{"kind":"redrive"}`, &e); code != http.StatusForbidden || e.Error == "" {
		t.Errorf("%d %+v", code, e)
	}
	r.user = "ann"
	var p plan
	if code := r.json(http.MethodPost, "/api/v1/plans", `{"kind":"redrive"}`, &p); code != http.StatusAccepted || p.Kind != "redrive" || p.Who != "ann" {
		t.Errorf("%d %+v", code, p)
	}
}

func TestSweeps_ShowsEachCompensation(t *testing.T) {
	r := newRig(t)
	begin := time.Now().Truncate(time.Hour)
	must.Do(t, r.store.AddSweep(t.Context(), r.cfg.Topics.Close, begin, overdue.Counts{Missed: 3, AfterPause: 2, NotClosed: 1}))
	must.Do(t, r.store.EndSweep(t.Context(), r.cfg.Topics.Close, begin, overdue.Unfinished, time.Minute))
	for _, s := range []wire.Sweep{
		{StartedAt: time.Now().Add(-2 * time.Hour), TookMillis: 12, Lock: "held", Holder: "host/17", Why: wire.SweepPeriod, Found: 6, Closed: 5,
			Missed: 3, AfterPause: 2, Failed: 1, PeriodMillis: 3_600_000},
		{StartedAt: time.Now().Add(-time.Hour), Lock: "held", Holder: "<b>host/18", Why: wire.SweepPeriod, Error: "the database is away"},
		{StartedAt: time.Now().Add(-time.Hour), Lock: "none", Holder: "host/19", Why: "later"},
	} {
		m := must.Get(s.Encode())(t)
		must.Get(r.kafka.Append(t.Context(), r.cfg.Topics.Control, 0, []wire.Message{m}))(t)
	}
	page := r.open("/sweeps")
	contains(t, page, "host/17", "the database is away", "&lt;b&gt;host", "later", "in the last 7 days, by kind: 6", "after_pause")
	contains(t, r.open("/"), `data-kind="sweep_failed"`, "has closed 3 orders that the pipeline had missed")
	var s answer[ops.Sweeps]
	code := r.json(http.MethodGet, "/api/v1/sweeps", "", &s)
	expect.That(t, code == http.StatusOK && len(s.Value.Sweeps) == 3, "%d %+v", code, s)
}

// many returns different values of a field.
func many(n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("0/%d", i))
	}
	return values
}

// A body of 1 MiB costs little, whatever it has.
func TestPlans_HaveAFewValuesOfEachField(t *testing.T) {
	r := newRig(t)
	for name, fields := range map[string]url.Values{
		"positions":           {"kind": {"redrive"}, "at": many(maxValues + 1)},
		"a long category":     {"kind": {"pause"}, "for": {"1m"}, "reason": {"x"}, "category": {strings.Repeat("x", maxCategory+1)}},
		"a control character": {"kind": {"pause"}, "for": {"1m"}, "reason": {"x\x1b[31m"}},
		"bytes":               {"kind": {"resume"}, "category": {"\xff"}},
	} {
		res, body := r.do(http.MethodPost, "/plans", "en", fields)
		expect.That(t, res.StatusCode == http.StatusBadRequest, "%s: %s\n%s", name, res.Status, body)
	}
	_, page := r.plan(url.Values{"kind": {"redrive"}, "at": many(maxValues)})
	contains(t, page, "<bdi>0/19</bdi> and 980 more")
	expect.Equal(t, len(given(many(100_000))), 100_000, "number of given")
}

// The log says who began what, also if the process is killed before the action ends.
func TestPlans_TheLogSaysWhoBeganWhatAndHowItEnded(t *testing.T) {
	var log testkit.LogBuffer
	r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	r.addDeadLetter("a", "failed", time.Now().Add(-time.Minute))
	path, _ := r.plan(url.Values{"kind": {"discard"}, "cause": {"failed"}, "stage": {""}, "at": {"0/0"}, "since": {"2020-01-01T00:00:00Z"}})
	expect.That(t, !strings.Contains(log.String(), "console action"), "a plan is no action")
	r.confirm(path)
	r.c.Close()
	var results []string
	for line := range strings.Lines(log.String()) {
		var l struct {
			Msg, Who, Action, Plan, Selected, Result string
			Planned, Handled                         int
		}
		err := json.Unmarshal([]byte(line), &l)
		must.That(t, err == nil, "%v: %s", err, line)
		if l.Msg != "console action" {
			continue
		}
		results = append(results, fmt.Sprintf("%s %d/%d", l.Result, l.Handled, l.Planned))
		if l.Who != "ann" || l.Action != "discard" || "/plans/"+l.Plan != path || l.Selected != "at=0%2F0&cause=failed&since=2020-01-01T00%3A00%3A00Z" {
			t.Errorf("%+v", l)
		}
	}
	expect.Equal(t, strings.Join(results, " "), "running 0/1 done 1/1", "%q", results)
}

func TestLocalPath_LeadsToThisConsole(t *testing.T) {
	for p, want := range map[string]string{
		"/": "/", "/delays": "/delays", "/dead-letters/0/1": "/dead-letters/0/1", "": "/", "x": "/", "//other.example": "/", "/\\other.example": "/",
		"/\t/other.example": "/", "/\n/other.example": "/", "https://other.example": "/", "/a?b": "/", "/../x": "/x", "/a/..//other.example": "/other.example",
	} {
		expect.Equal(t, localPath(p), want, "%q leads to", p)
	}
}
