package console

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
)

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
		"orders":              {"kind": {"replay"}, "from": {"2026-11-20T12:30"}, "to": {"2026-11-20T12:31"}, "order": many(50_000)},
		"a long category":     {"kind": {"pause"}, "path": {"all"}, "for": {"1m"}, "reason": {"x"}, "category": {strings.Repeat("x", maxCategory+1)}},
		"a control character": {"kind": {"pause"}, "path": {"all"}, "for": {"1m"}, "reason": {"x\x1b[31m"}},
		"bytes":               {"kind": {"resume"}, "path": {"all"}, "category": {"\xff"}},
	} {
		if res, body := r.do(http.MethodPost, "/plans", "en", fields); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s\n%s", name, res.Status, body)
		}
	}
	_, page := r.plan(url.Values{"kind": {"redrive"}, "at": many(maxValues)})
	contains(t, page, "<bdi>0/19</bdi> and 980 more")
	if n := len(given(many(1_000_000))); n != 1_000_000 {
		t.Error(n)
	}
}

// The log says who began what, also if the process is killed before the action ends.
func TestPlans_TheLogSaysWhoBeganWhatAndHowItEnded(t *testing.T) {
	var log testkit.LogBuffer
	r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	r.addDeadLetter("a", "failed", time.Now().Add(-time.Minute))
	path, _ := r.plan(url.Values{"kind": {"discard"}, "cause": {"failed"}, "stage": {""}, "at": {"0/0"}, "since": {"2020-01-01T00:00:00Z"}})
	if strings.Contains(log.String(), "console action") {
		t.Error("a plan is no action")
	}
	r.confirm(path)
	r.c.Close()
	var results []string
	for line := range strings.Lines(log.String()) {
		var l struct {
			Msg, Who, Action, Plan, Selected, Result string
			Planned, Handled                         int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if l.Msg != "console action" {
			continue
		}
		results = append(results, fmt.Sprintf("%s %d/%d", l.Result, l.Handled, l.Planned))
		if l.Who != "ann" || l.Action != "discard" || "/plans/"+l.Plan != path || l.Selected != "at=0%2F0&cause=failed&since=2020-01-01T00%3A00%3A00Z" {
			t.Errorf("%+v", l)
		}
	}
	if strings.Join(results, " ") != "running 0/1 done 1/1" {
		t.Errorf("%q", results)
	}
}

func TestLocalPath_LeadsToThisConsole(t *testing.T) {
	for p, want := range map[string]string{
		"/": "/", "/delays": "/delays", "/dead-letters/0/1": "/dead-letters/0/1", "": "/", "x": "/", "//other.example": "/", "/\\other.example": "/",
		"/\t/other.example": "/", "/\n/other.example": "/", "https://other.example": "/", "/a?b": "/", "/../x": "/x", "/a/..//other.example": "/other.example",
	} {
		if got := localPath(p); got != want {
			t.Errorf("%q leads to %q, want %q", p, got, want)
		}
	}
}
