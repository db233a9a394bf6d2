package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
)

var linkTo = regexp.MustCompile(` · <a href="(/[^"#]*)(?:#([^"]*))?">`)

// A problem leads to the page that shows more, at the place where it does.
func TestNow_LeadsToThePageOfAProblem(t *testing.T) {
	r := newRig(t)
	r.addDeadLetter("a", "failed", time.Now())
	for range 300 {
		if strings.Contains(r.open("/"), `data-kind="letters_pending"`) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	contains(t, r.open("/"), `data-kind="letters_pending"`, ` · <a href="/dead-letters">Dead letters</a>`)
	for kind, n := range problemPages {
		link := linkTo.FindStringSubmatch(` · <a href="` + n.Path + `">`)
		page := r.open(link[1])
		if !strings.Contains(page, `id="`+link[2]+`"`) && link[2] != "" || texts()[n.Name+".title"] == nil {
			t.Errorf("%s: %s has no %q", kind, link[1], link[2])
		}
	}
}

// A server that is not configured is not one that does not answer.
func TestNow_ADatabaseThatIsNotConfiguredIsNoProblem(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Store = nil })
	page := r.open("/")
	contains(t, page, `data-state="well"`, "The database is not configured here")
	if strings.Contains(page, "has not answered") {
		t.Errorf("the page says that a server does not answer:\n%s", page)
	}
	contains(t, r.open("/delays"), "is not configured here")
}

func TestOrder_ThatWasNotSearchedEverywhereMayExist(t *testing.T) {
	r := newRig(t)
	_, page := r.do(http.MethodPost, "/order", "en", url.Values{"id": {"nowhere"}})
	contains(t, page, "This order was found nowhere")
	_ = r.store.Close()
	_, page = r.do(http.MethodPost, "/order", "en", url.Values{"id": {"nowhere"}})
	contains(t, page, "not everything could be searched")
	if strings.Contains(page, "found nowhere") {
		t.Error("the page says that the order does not exist")
	}
}

func TestErrors_OnlyAMissingPageIsNotFound(t *testing.T) {
	r := newRig(t)
	_, page := r.do(http.MethodGet, "/nothing", "en", nil)
	contains(t, page, "<h1>Not found</h1>")
	_, page = r.do(http.MethodPost, "/plans", "en", url.Values{"kind": {"resume"}})
	contains(t, page, "<h1>This request failed</h1>", "nothing has changed", "path is")
	r.user = "bob"
	_, page = r.do(http.MethodPost, "/plans", "en", url.Values{"kind": {"pause"}})
	contains(t, page, "<h1>This request failed</h1>", "Actions need an operator")
}

// Without a filter there is no button that discards all.
func TestLetters_AreDiscardedByAFilterOnly(t *testing.T) {
	r := newRig(t)
	contains(t, r.open("/dead-letters"), `id="no-letters"`)
	r.addDeadLetter("a", "failed", time.Now())
	for range 300 {
		if strings.Contains(r.open("/dead-letters"), `data-at="0/0"`) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	page := r.open("/dead-letters")
	contains(t, page, `id="plan-redrive"`, "<button>Send 1 dead letters again</button>", "filter them first")
	if strings.Contains(page, `id="plan-discard"`) {
		t.Error("a button discards all dead letters")
	}
	page = r.open("/dead-letters?cause=failed&all=1")
	contains(t, page, `id="plan-redrive"`, "<button>Discard 1 dead letters</button>")
	if strings.Index(page, `id="plan-discard"`) > strings.Index(page, `<table id="letters"`) {
		t.Error("the buttons are below the list")
	}
	if page := r.open("/dead-letters?cause=other"); strings.Contains(page, `id="plan-discard"`) {
		t.Error("a button discards nothing")
	}
}

func TestTimes_OldValuesHaveAnAge(t *testing.T) {
	p := page{Lang: "en"}
	now := time.Now()
	if got := p.TimeAndAge(now.Add(-time.Second)); got != p.Time(now.Add(-time.Second)) {
		t.Error(got)
	}
	if got := p.TimeAndAge(now.Add(-time.Hour)); !strings.HasSuffix(got, " (1h ago)") {
		t.Error(got)
	}
	later := now.Add(time.Minute)
	if got := p.In(later, now); got != "in 1m" {
		t.Error(got)
	}
	if got := p.In(now, later); got != "" {
		t.Error(got)
	}
	if p.Unset(nil) || !p.Unset(ops.ErrNoKafka) || !p.Unset(ops.ErrNoDatabase) {
		t.Error("a server that is configured counts as one that is not")
	}
}
