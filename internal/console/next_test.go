package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

var linkTo = regexp.MustCompile(` · <a href="(/[^"#]*)(?:#([^"]*))?">`)

// A problem leads to the page that shows more, at the place where it does.
func TestNow_LeadsToThePageOfAProblem(t *testing.T) {
	r := newRig(t)
	r.addDeadLetter("a", "failed", time.Now())
	r.indexed(1)
	contains(t, r.open("/"), `data-kind="letters_open"`, ` · <a href="/dead-letters">Dead letters</a>`)
	for _, k := range kinds() {
		if k.Page == "" {
			continue
		}
		link := linkTo.FindStringSubmatch(` · <a href="` + k.Page + `">`)
		body := r.open(link[1])
		if !strings.Contains(body, `id="`+link[2]+`"`) && link[2] != "" || strings.HasSuffix((page{Lang: "en"}).TitleOf(k.Page), ".title") {
			t.Errorf("%s: %s has no %q, or no title", k.Name, link[1], link[2])
		}
	}
}

// A server that is not configured is not one that does not answer.
func TestNow_ADatabaseThatIsNotConfiguredIsNoProblem(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Store = nil })
	page := r.open("/")
	contains(t, page, `data-state="well"`, "The database is not configured here")
	expect.That(t, !strings.Contains(page, "has not answered"), "the page says that a server does not answer:\n%s", page)
	contains(t, r.open("/delays"), "is not configured here")
}

func TestOrder_ThatWasNotSearchedEverywhereMayExist(t *testing.T) {
	r := newRig(t)
	_, page := r.do(http.MethodPost, "/order", "en", url.Values{"id": {"nowhere"}})
	contains(t, page, "This order was found nowhere")
	_ = r.store.Close()
	_, page = r.do(http.MethodPost, "/order", "en", url.Values{"id": {"nowhere"}})
	contains(t, page, "not everything could be searched")
	expect.That(t, !strings.Contains(page, "found nowhere"), "the page says that the order does not exist")
}

func TestErrors_OnlyAMissingPageIsNotFound(t *testing.T) {
	r := newRig(t)
	_, page := r.do(http.MethodGet, "/nothing", "en", nil)
	contains(t, page, "<h1>Not found</h1>")
	_, page = r.do(http.MethodPost, "/actions", "en", url.Values{"kind": {"resume"}, "category": {"\x01"}})
	contains(t, page, "<h1>This request failed</h1>", "nothing has changed", "category has")
	r.user = "bob"
	_, page = r.do(http.MethodPost, "/actions", "en", url.Values{"kind": {"pause"}})
	contains(t, page, "<h1>This request failed</h1>", "Actions need an operator")
}

func TestTimes_OldValuesHaveAnAge(t *testing.T) {
	p := page{Lang: "en"}
	now := time.Now()
	expect.Equal(t, p.TimeAndAge(now.Add(-time.Second)), p.Time(now.Add(-time.Second)), "time and age")
	got := p.TimeAndAge(now.Add(-time.Hour))
	expect.That(t, strings.HasSuffix(got, " (1h ago)"), "%v", got)
	later := now.Add(time.Minute)
	expect.Equal(t, p.In(later, now), "in 1m", "a time ahead")
	expect.Equal(t, p.In(now, later), "", "a time that has passed")
	expect.That(t, !p.Unset(nil) && p.Unset(health.ErrNoKafka) && p.Unset(health.ErrNoDatabase), "a server that is configured counts as one that is not")
}

// in sends a request of a reader who has chosen a zone.
func (r *rig) in(zone, method, path string, form url.Values) (*http.Response, string) {
	r.t.Helper()
	r.cookie = zoneCookie + "=" + zone
	defer func() { r.cookie = "" }()
	return r.do(method, path, "en", form)
}

func TestMoment_IsISOInAZoneUnlessItHasAnOffset(t *testing.T) {
	shanghai, berlin := zoneNamed("Asia/Shanghai"), zoneNamed("Europe/Berlin")
	want := time.Date(2026, 11, 22, 13, 41, 0, 0, time.UTC)
	for value, zone := range map[string]*time.Location{
		"2026-11-22T13:41:00Z": shanghai, "2026-11-22 13:41:00Z": berlin, "2026-11-22T21:41:00+08:00": time.UTC, "2026-11-22T21:41+08:00": berlin,
		"2026-11-22 21:41": shanghai, "2026-11-22T14:41:00": berlin, " 2026-11-22T13:41:00 ": time.UTC, "2026-11-22T13:41:00.000Z": shanghai,
	} {
		got, err := momentIn(zone, "from", value)
		expect.That(t, err == nil && got.Equal(want), "%q in %s: %s %v", value, zone, got, err)
	}
	for _, value := range []string{"", "11/22/2026, 01:41:00 PM", "2026-11-22", "13:41", "2026-13-01 00:00", "now"} {
		got, err := momentIn(shanghai, "from", value)
		expect.That(t, err != nil && strings.Contains(err.Error(), "want a moment such as 2026-11-20T12:30:00Z"), "%q: %s %v", value, got, err)
	}
}

func TestZone_FormatsEachMomentAndHasTheOffsetOnce(t *testing.T) {
	summer := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, want := range map[string]string{
		"UTC": "2026-07-01 12:00:00", "Asia/Shanghai": "2026-07-01 20:00:00", "": "2026-07-01 12:00:00",
		"Local": "2026-07-01 12:00:00", "../../etc/passwd": "2026-07-01 12:00:00", "Nowhere/City": "2026-07-01 12:00:00",
	} {
		expect.Equal(t, (page{Zone: zoneNamed(name)}).Time(summer), want, "%q", name)
	}
	berlin, winter := page{Zone: zoneNamed("Europe/Berlin")}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	both := berlin.Time(summer) + berlin.Time(winter)
	expect.That(t, strings.Count(both, "UTC+0") == 1, "%s: a moment of the other half of the year has its offset, and one of this half has none", both)
	now := time.Now().UTC()
	got := (page{}).Short(now) + (page{}).Short(now.AddDate(0, 0, -2))
	expect.That(t, got == now.Format("15:04:05")+now.AddDate(0, 0, -2).Format("01-02 15:04:05"), "%v", got)
}

// The zone holds for what the console shows, and for what is typed.
func TestZone_IsChosenByACookie(t *testing.T) {
	r := newRig(t)
	contains(t, r.open("/delays"), "Times: UTC<", `id="other-zone" name="zone" value="UTC" aria-pressed="false" hidden`)
	res, _ := r.do(http.MethodPost, "/zone", "en", url.Values{"zone": {"Asia/Shanghai"}, "path": {"/delays"}})
	c := res.Cookies()[0]
	expect.That(t, c.Name == zoneCookie && c.Value == "Asia/Shanghai" && res.Header.Get("Location") == "/delays", "%v %v", c, res.Header)
	res, _ = r.do(http.MethodPost, "/zone", "en", url.Values{"zone": {"no zone; x=y"}, "path": {"/"}})
	expect.Equal(t, res.Cookies()[0].Value, "UTC", "the cookie")
	_, page := r.in("Asia/Shanghai", http.MethodGet, "/dead-letters?since=2026-11-22+21%3A41", nil)
	contains(t, page, "Times: Asia/Shanghai, UTC&#43;08:00<", `value="2026-11-22T21:41:00&#43;08:00"`)
}

// A form that is refused is shown again as it was typed, with what is wrong.
func TestForms_ThatAreRefusedKeepWhatWasTyped(t *testing.T) {
	r := newRig(t)
	res, page := r.do(http.MethodPost, "/actions", "en", url.Values{"kind": {"pause"}, "category": {"ticket"}, "for": {"later"}})
	expect.Equal(t, res.StatusCode, http.StatusBadRequest, "status")
	contains(t, page, `id="refused"`, "reason is missing",
		`name="category" list="categories" maxlength="64" autocomplete="off" value="ticket"`, `value="later"`)
}
