package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

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
		if got, err := momentIn(zone, "from", value); err != nil || !got.Equal(want) {
			t.Errorf("%q in %s: %s %v", value, zone, got, err)
		}
	}
	for _, value := range []string{"", "11/22/2026, 01:41:00 PM", "2026-11-22", "13:41", "2026-13-01 00:00", "now"} {
		if got, err := momentIn(shanghai, "from", value); err == nil || !strings.Contains(err.Error(), "want a moment such as 2026-11-20T12:30:00Z") {
			t.Errorf("%q: %s %v", value, got, err)
		}
	}
}

func TestZone_FormatsEachMomentAndHasTheOffsetOnce(t *testing.T) {
	summer := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, want := range map[string]string{
		"UTC": "2026-07-01 12:00:00", "Asia/Shanghai": "2026-07-01 20:00:00", "": "2026-07-01 12:00:00",
		"Local": "2026-07-01 12:00:00", "../../etc/passwd": "2026-07-01 12:00:00", "Nowhere/City": "2026-07-01 12:00:00",
	} {
		if got := (page{Zone: zoneNamed(name)}).Time(summer); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	berlin, winter := page{Zone: zoneNamed("Europe/Berlin")}, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	if both := berlin.Time(summer) + berlin.Time(winter); strings.Count(both, "UTC+0") != 1 {
		t.Errorf("%s: a moment of the other half of the year has its offset, and one of this half has none", both)
	}
	now := time.Now().UTC()
	if got := (page{}).Short(now) + (page{}).Short(now.AddDate(0, 0, -2)); got != now.Format("15:04:05")+now.AddDate(0, 0, -2).Format("01-02 15:04:05") {
		t.Error(got)
	}
}

// The zone holds for what the console shows, and for what is typed.
func TestZone_IsChosenByACookie(t *testing.T) {
	r := newRig(t)
	contains(t, r.open("/delays"), "Times: UTC<", `id="other-zone" name="zone" value="UTC" aria-pressed="false" hidden`)
	res, _ := r.do(http.MethodPost, "/zone", "en", url.Values{"zone": {"Asia/Shanghai"}, "path": {"/delays"}})
	if c := res.Cookies()[0]; c.Name != zoneCookie || c.Value != "Asia/Shanghai" || res.Header.Get("Location") != "/delays" {
		t.Errorf("%v %v", c, res.Header)
	}
	res, _ = r.do(http.MethodPost, "/zone", "en", url.Values{"zone": {"no zone; x=y"}, "path": {"/"}})
	if c := res.Cookies()[0]; c.Value != "UTC" {
		t.Errorf("%v", c)
	}
	_, page := r.in("Asia/Shanghai", http.MethodGet, "/replay?from=2026-11-22T13:41:00Z&to=2026-11-22T21:50:00", nil)
	contains(t, page, "Times: Asia/Shanghai, UTC&#43;08:00<", `value="2026-11-22T21:41:00&#43;08:00"`, `value="2026-11-22T21:50:00&#43;08:00"`)
	res, _ = r.in("Asia/Shanghai", http.MethodPost, "/plans", url.Values{"kind": {"replay"}, "from": {"2026-11-22 21:41"}, "to": {"2026-11-22 21:50:30"}})
	path := res.Header.Get("Location")
	page = r.settled(path)
	contains(t, page, "<dt>From</dt><dd><bdi>2026-11-22T13:41:00Z</bdi>", "2026-11-22 13:41:00 – 2026-11-22 13:50:30", `name="from" value="2026-11-22T13:41:00Z"`)
	_, page = r.in("Asia/Shanghai", http.MethodGet, path, nil)
	contains(t, page, "2026-11-22 21:41:00 – 2026-11-22 21:50:30")
	_, page = r.in("Asia/Shanghai", http.MethodGet, "/dead-letters?since=2026-11-22+21%3A41", nil)
	contains(t, page, `value="2026-11-22T21:41:00&#43;08:00"`)
}

// A form that is refused is shown again as it was typed, with what is wrong.
func TestForms_ThatAreRefusedKeepWhatWasTyped(t *testing.T) {
	r := newRig(t)
	res, page := r.do(http.MethodPost, "/plans", "en", url.Values{"kind": {"replay"}, "from": {"11/22/2026, 01:41:00 PM"}, "to": {"2026-11-22 14:00"}, "order": {"o-17"}, "category": {`<i>`}})
	if res.StatusCode != http.StatusBadRequest {
		t.Error(res.Status)
	}
	contains(t, page, `id="refused"`, "from is &#34;11/22/2026, 01:41:00 PM&#34;, want a moment such as", `value="11/22/2026, 01:41:00 PM"`, `value="2026-11-22T14:00:00Z"`, `value="o-17"`, `value="&lt;i&gt;"`, `<main id="main" data-page="replay"`)
	_, page = r.do(http.MethodPost, "/plans", "en", url.Values{"kind": {"replay"}, "from": {"2026-11-22 14:00"}, "to": {"2026-11-22 13:00"}})
	contains(t, page, "from is not before to", `value="2026-11-22T13:00:00Z"`)
	_, page = r.do(http.MethodPost, "/plans", "en", url.Values{"kind": {"pause"}, "path": {"sweep"}, "category": {"ticket"}, "for": {"later"}})
	contains(t, page, `id="refused"`, "reason is missing", `<option value="sweep" selected>`, `name="category" list="categories" maxlength="64" autocomplete="off" value="ticket"`, `value="later"`)
}
