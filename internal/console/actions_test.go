package console

import (
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
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

// ask sends the form of an action, and returns the page that answers.
func (r *rig) ask(form url.Values) (page string) {
	r.t.Helper()
	res, page := r.do(http.MethodPost, "/actions", "en", form)
	must.That(r.t, res.StatusCode == http.StatusOK, "%v: %s\n%s", form, res.Status, page)
	return page
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// confirmation returns the form on a page that confirms its action.
func (r *rig) confirmation(page string) url.Values {
	r.t.Helper()
	_, form, found := strings.Cut(page, `<form id="confirm"`)
	must.That(r.t, found, "the page has no form to confirm:\n%s", page)
	form, _, _ = strings.Cut(form, "</form>")
	fields := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(form, -1) {
		fields.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	return fields
}

// confirm confirms the action of a page, and returns the page of the result.
func (r *rig) confirm(page string) string {
	r.t.Helper()
	return r.ask(r.confirmation(page))
}

func TestActions_RefuseOtherForms(t *testing.T) {
	r := newRig(t)
	for _, form := range []url.Values{{"kind": {"discard"}}, {"kind": {"rm"}}, {}, {"kind": {"sweep"}}} {
		form.Set("confirm", "1")
		res, _ := r.do(http.MethodPost, "/actions", "en", form)
		expect.That(t, res.StatusCode == http.StatusBadRequest, "%v: %s", form, res.Status)
	}
	for _, gone := range []string{"/plans", "/actions"} {
		res, _ := r.do(http.MethodGet, gone, "en", nil)
		expect.That(t, res.StatusCode == http.StatusNotFound, "GET %s: %s", gone, res.Status)
	}
}

func TestActions_PauseAndResume(t *testing.T) {
	r := newRig(t)
	page := r.ask(url.Values{"kind": {"pause"}, "for": {"30m"}, "reason": {"<b>maintenance</b>"}, "category": {""}})
	contains(t, page, `data-state="asked"`, "<dd>all orders</dd>", `id="effect"`)
	contains(t, r.open("/delays"), `id="no-pause"`)
	contains(t, r.confirm(page), `data-state="done"`, `<dd id="paused">1</dd>`, `<a href="/delays">`)
	contains(t, r.open("/delays"), "&lt;b&gt;maintenance&lt;/b&gt;", `value="resume"><input type="hidden" name="category" value=""><button`)
	shorter := url.Values{"kind": {"pause"}, "for": {"1m"}, "reason": {"restart"}}
	res, page := r.do(http.MethodPost, "/actions", "en", shorter)
	contains(t, page, `id="refused"`, "all orders until 2", "&lt;b&gt;maintenance&lt;/b&gt;", "Replace in the console", `value="restart"`)
	expect.Equal(t, res.StatusCode, http.StatusBadRequest, "status")
	shorter.Set("replace", "1")
	page = r.ask(shorter)
	contains(t, page, `data-state="asked"`, `<dd id="ended"><p>all orders, 2`)
	contains(t, r.confirm(page), `data-state="done"`, `<dd id="ended"><p>all orders, 2`)
	contains(t, r.open("/delays"), "restart", `value="resume"`)
	contains(t, r.open("/"), `data-kind="closing_paused"`)
	page = r.ask(url.Values{"kind": {"resume"}})
	contains(t, r.confirm(page), `<dd id="paused">0</dd>`, `<dd id="ended"><p>all orders, 2`, "restart")
	contains(t, r.open("/delays"), `id="no-pause"`)
	contains(t, r.ask(url.Values{"kind": {"resume"}}), `data-state="nothing"`)
	for _, form := range []url.Values{{"for": {"25h"}, "reason": {"x"}}, {"for": {"1m"}}} {
		form.Set("kind", "pause")
		res, _ := r.do(http.MethodPost, "/actions", "en", form)
		expect.That(t, res.StatusCode == http.StatusBadRequest, "%v: %s", form, res.Status)
	}
}

func TestActions_AreForOperatorsOnly(t *testing.T) {
	r := newRig(t)
	form := url.Values{"kind": {"pause"}, "for": {"30m"}, "reason": {"maintenance"}}
	confirmed := r.confirmation(r.ask(form))
	r.user = "bob"
	for _, page := range []string{"/", "/order", "/delays", "/payments", "/dead-letters"} {
		body := r.open(page)
		expect.That(t, !strings.Contains(body, `action="/actions"`), "%s offers an action to a viewer:\n%s", page, body)
	}
	for _, form := range []url.Values{form, confirmed} {
		res, _ := r.do(http.MethodPost, "/actions", "en", form)
		expect.That(t, res.StatusCode == http.StatusForbidden, "%v: %s", form, res.Status)
	}
	r.user = "ann"
	contains(t, r.ask(form), `data-state="asked"`)
}

func TestNow_ShowsTheCompensationsOfADay(t *testing.T) {
	for age, finding := range map[time.Duration]string{0: "sweep_failed", 8 * 24 * time.Hour: "sweep_missing"} {
		t.Run(finding, func(t *testing.T) {
			r, begin := newRig(t), time.Now().Truncate(time.Hour).Add(-age)
			must.Do(t, r.store.AddSweep(t.Context(), r.cfg.Topics.Close, begin, overdue.Counts{Missed: 3, AfterPause: 2, NotClosed: 1}))
			must.Do(t, r.store.EndSweep(t.Context(), r.cfg.Topics.Close, begin, overdue.Unfinished, time.Minute))
			page := r.open("/")
			contains(t, page, `data-kind="`+finding+`"`)
			expect.Equal(t, strings.Contains(page, "has closed 3 orders that the pipeline had missed, 2 after a pause and 0 after a failure"), age == 0, "the last day")
		})
	}
}

// many returns different values of a field.
func many(n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("0/%d", i))
	}
	return values
}

// A body of 1 MiB costs little, whatever it has.
func TestActions_HaveAFewValuesOfEachField(t *testing.T) {
	r := newRig(t)
	for name, fields := range map[string]url.Values{
		"values":              {"kind": {"resume"}, "at": many(maxValues + 1)},
		"a long category":     {"kind": {"pause"}, "for": {"1m"}, "reason": {"x"}, "category": {strings.Repeat("x", maxCategory+1)}},
		"a control character": {"kind": {"pause"}, "for": {"1m"}, "reason": {"x\x1b[31m"}},
		"bytes":               {"kind": {"resume"}, "category": {"\xff"}},
	} {
		res, body := r.do(http.MethodPost, "/actions", "en", fields)
		expect.That(t, res.StatusCode == http.StatusBadRequest, "%s: %s\n%s", name, res.Status, body)
	}
	expect.Equal(t, len(given(many(100_000))), 100_000, "number of given")
}

// The log says who began what, also if the process is killed before the action ends. An action of a console that is closed ends early.
func TestActions_TheLogSaysWhoBeganWhatAndHowItEnded(t *testing.T) {
	var log testkit.LogBuffer
	r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	page := r.ask(url.Values{"kind": {"pause"}, "for": {"30m"}, "reason": {"why"}, "category": {""}})
	expect.That(t, !strings.Contains(log.String(), "console action"), "the log has an action that nobody has confirmed")
	r.confirm(page)
	page = r.ask(url.Values{"kind": {"pause"}, "for": {"40m"}, "reason": {"why"}})
	r.c.Close()
	contains(t, r.confirm(page), `data-state="failed"`, "context canceled")
	var results []string
	for line := range strings.Lines(log.String()) {
		var l struct {
			Msg, Who, Role, Address, Action, Selected, Result string
			Planned, Handled                                  int
		}
		err := json.Unmarshal([]byte(line), &l)
		must.That(t, err == nil, "%v: %s", err, line)
		if l.Msg != "console action" {
			continue
		}
		if results = append(results, fmt.Sprintf("%.6s %d/%d", l.Result, l.Handled, l.Planned)); len(results) > 2 {
			continue
		}
		if l.Who != "ann" || l.Role != "operator" || l.Address != "127.0.0.1" || l.Action != "pause" || l.Selected != "for=30m&reason=why" {
			t.Errorf("%+v", l)
		}
	}
	expect.Equal(t, strings.Join(results, ", "), "runnin 0/0, done 0/0, runnin 0/0, failed 0/0", "results")
	kept := ""
	must.Do(t, r.store.DB().QueryRow("SELECT COALESCE(group_concat(who || ': ' || result, '; '), '') FROM operator_actions").Scan(&kept))
	expect.That(t, strings.HasPrefix(kept, "ann: done, 0 of 0; ann: failed: "), "the audit log has %s", kept)
}

func TestLocalPath_LeadsToThisConsole(t *testing.T) {
	for p, want := range map[string]string{
		"/": "/", "/delays": "/delays", "/dead-letters/0/1": "/dead-letters/0/1", "": "/", "x": "/", "//other.example": "/", "/\\other.example": "/",
		"/\t/other.example": "/", "/\n/other.example": "/", "https://other.example": "/", "/a?b": "/", "/../x": "/x", "/a/..//other.example": "/other.example",
	} {
		expect.Equal(t, localPath(p), want, "%q leads to", p)
	}
}
