package consoletest

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// standIn is a console of a few pages in memory, with at most one fault.
type standIn struct {
	fault  string
	server *httptest.Server

	mu       sync.Mutex
	orders   map[string]string // id to category
	letters  []letter
	resolved map[string][]string // by the place of the letter
}

type action struct{ Kind, At, State string }

func newStandIn(t testing.TB, fault string) *standIn {
	s := &standIn{fault: fault, orders: map[string]string{}, resolved: map[string][]string{}}
	mux := http.NewServeMux()
	for _, path := range []string{"/{$}", "/order", "/dead-letters", "/dead-letters/{partition}/{offset}", "/sweeps", "/delays", "/payments", "/runbook"} {
		mux.HandleFunc(path, s.page)
	}
	mux.HandleFunc("POST /language", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "lang", Value: r.FormValue("lang"), Path: "/"})
		http.Redirect(w, r, r.FormValue("path"), http.StatusSeeOther)
	})
	mux.HandleFunc("POST /actions", s.act)
	mux.HandleFunc("GET /live", s.live)
	mux.HandleFunc("GET /static/{name}", s.static)
	s.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

func (s *standIn) url() string { return s.server.URL }

func (*standIn) password() string { return "" }

func (s *standIn) create(_ testing.TB, id, category string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[id] = category
}

func (*standIn) awaitClose(testing.TB, string) {}

func (s *standIn) giveUp(_ testing.TB, l letter) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters = append(s.letters, l.filled(time.Now()))
	return "0/" + strconv.Itoa(len(s.letters)-1)
}

func (s *standIn) resolutions(_ testing.TB, at string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.resolved[at])
}

// view is what the templates of the stand-in get.
type view struct {
	*standIn
	Lang, Page, Path, ID string
	Action               *action
	At                   string
	Letter               *letter
	Pending              map[string]letter
}

func (v view) Is(fault string) bool { return v.fault == fault }

// T chooses the text of the page's language.
func (v view) T(en, zh string) string {
	if v.Lang == "zh" && v.fault != "English only" {
		return zh
	}
	return en
}

// Show shows a text of somebody else.
func (v view) Show(text string) any {
	switch v.fault {
	case "not escaped":
		return template.HTML(text)
	case "direction":
		return text
	}
	return strings.Map(func(r rune) rune {
		if isDirection(r) || printable(string(r)) == "" && v.fault != "control characters" {
			return '�'
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
}

// Waiting counts the orders of a bucket.
func (v view) Waiting(category string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.orders {
		if c == category {
			n++
		}
	}
	return n
}

func (v view) Category() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.orders[v.ID]
}

const standInLayout = `<!doctype html>
<html lang="{{.Lang}}"><head><meta charset="utf-8"><title>{{.Page}}</title>
{{if not (.Is "no viewport")}}<meta name="viewport" content="width=device-width, initial-scale=1">{{end}}
<link rel="icon" href="data:,"><link rel="stylesheet" href="/static/style.css"><script src="/static/console.js" defer></script>
{{if .Is "inline script"}}<script>document.title = "inline"</script>{{end}}</head>
<body>{{if not (.Is "no skip link")}}<a class="skip" href="#main">{{.T "Skip" "跳过"}}</a>{{end}}
{{if .Is "another host"}}<img src="http://other.invalid/x.png" alt="">{{end}}
<nav aria-label="{{.T "pages" "页面"}}">{{$v := .}}{{range $page, $path := pages}}
<a id="nav-{{$page}}" href="{{$path}}"{{if eq $page $v.Page}} aria-current="page"{{end}}>{{$v.T $page "页"}}</a>{{end}}</nav>
<form id="search" action="/order"
method="{{if .Is "id in URL"}}get{{else}}post{{end}}">{{if not (.Is "no label")}}<label for="order-id">{{.T "Order" "订单"}}</label>{{end}}
<input id="order-id" name="id" maxlength="64"><button{{if .Is "unreachable"}} tabindex="-1"{{end}}>{{.T "Search" "搜索"}}</button></form>
<form id="language" method="post" action="/language"><input type="hidden" name="path" value="{{.Path}}"><button name="lang"
value="en">English</button> <button name="lang" value="zh">中文</button></form>
<main id="main" data-page="{{.Page}}" tabindex="-1"><h1>{{.T "Page" "页面"}} {{.Page}}</h1>
{{if .Is "low contrast"}}<p class="faint">faint</p>{{end}}{{if .Is "too wide"}}<div class="wide">wide</div>{{end}}
{{if eq .Page "now"}}{{if .Is "needs scripts"}}<div id="live"></div>{{else}}<div id="live">{{template "now" .}}</div>{{end}}{{end}}
{{if eq .Page "order"}}{{if .ID}}<h2><bdi>{{.Show .ID}}</bdi></h2>{{with .Category}}
<p>{{$v.T "created" "已创建"}} <time datetime="2026-03-01">2026</time>, {{$v.T "due" "到期"}} <time
datetime="2026-03-01">2026</time> (delay_6h <bdi>{{$v.Show .}}</bdi>){{if eq . "soon"}}, closed <time
datetime="2026-03-01">2026</time>{{end}}</p>{{end}}{{end}}{{end}}
{{if eq .Page "delays"}}<form method="post"><label>{{.T "Category" "类别"}} <input name="category"
value="{{.ID}}"></label><button>{{.T "Calculate" "计算"}}</button></form>{{end}}
{{if eq .Page "dead-letters"}}<form method="post"><label>{{.T "Order" "订单"}} <input name="order"></label></form>
<table><caption>{{.T "Dead letters" "死信"}}</caption>{{range $at, $l := .Pending}}<tr data-at="{{$at}}"><td><a
href="/dead-letters/{{$at}}">{{$at}}</a></td><td class="text"><bdi>{{$v.Show $l.Order}}</bdi></td></tr>{{end}}</table>{{end}}
{{with .Letter}}<form method="post" action="/actions"><input type="hidden" name="at" value="{{$v.At}}"><button name="kind"
value="redrive">{{$v.T "Redrive" "重发"}}</button></form>
<div class="text" tabindex="0">{{range .Texts}}<bdi>{{$v.Show .}}</bdi> {{end}}</div>{{end}}
{{with .Action}}<section id="action" data-state="{{.State}}">{{.Kind}} {{.At}}{{if eq .State "asked"}}<form id="confirm" method="post" action="/actions"><input
type="hidden" name="confirm" value="1"><input type="hidden" name="kind" value="{{.Kind}}"><input type="hidden" name="at" value="{{.At}}"><button>{{$v.T
"Confirm" "确认"}}</button></form>{{end}}</section>{{end}}
</main></body></html>
{{define "now"}}<p id="verdict" role="status" data-state="well">{{.T "All is well" "一切正常"}}</p>
<table><caption>{{.T "Buckets" "桶"}}</caption><tr><th {{if not (.Is "no scope")}}scope="row"{{end}}>6h</th></tr>
<tr data-topic="delay_6h"><td>{{.Waiting "later"}}</td></tr><tr data-topic="delay_12h"><td>{{.Waiting "tomorrow"}}</td></tr></table>
<details><summary id="more">{{.T "Partitions" "分区"}}</summary></details>{{end}}
`

var standInTemplate = template.Must(template.New("").Funcs(template.FuncMap{"pages": func() map[string]string { return pagesOf }}).Parse(standInLayout))

// Texts returns what the page of a letter shows.
func (l letter) Texts() []string { return []string{l.Order, l.Cause, l.Detail, l.Stage, l.Value} }

const standInStyle = `:root { color-scheme: light dark }
body { margin: 8px; background: light-dark(#fff, #111); color: light-dark(#111, #eee); overflow-wrap: anywhere }
a { color: light-dark(#00c, #9cf) }
.skip { position: absolute; left: -999px }
.skip:focus { left: 8px; background: light-dark(#fff, #111) }
:focus-visible { outline: 2px solid }
td { overflow-wrap: anywhere }
.text { max-width: 300px }`

const standInScript = `const live = document.getElementById("live");
let events;
if (live) onpageshow = () => {
	events = new EventSource("/live?path=" + location.pathname);
	events.onmessage = e => {
		const html = JSON.parse(e.data), at = document.activeElement.id;
		if (live.innerHTML === html) return;
		live.innerHTML = html;
		if (at) document.getElementById(at)?.focus();
	};
};
onpagehide = () => events?.close();`

func (s *standIn) static(w http.ResponseWriter, r *http.Request) {
	style, script := standInStyle, standInScript
	switch s.fault {
	case "low contrast":
		style += "\n.faint { color: light-dark(#ccc, #333) }"
	case "too wide":
		style += "\n.wide { width: 2000px }"
	case "always light":
		style += "\nbody { background: #fff; color: #111 } a { color: #00c }"
	case "no focus ring":
		style += "\n:focus-visible { outline: none }"
	case "moves":
		style += "\n@keyframes move { to { opacity: 0.9 } }\nh1 { animation: move 1s infinite }"
	case "direction":
		style += "\nbdi { unicode-bidi: normal }"
	case "script error":
		script = "nothing.here()"
	case "console error":
		script = `console.error("it does not work")`
	case "dialog":
		script = `alert("hello")`
	case "takes the focus":
		script = strings.Replace(script, "if (at) document.getElementById(at)?.focus()", "document.activeElement.blur()", 1)
	case "keeps connections":
		script = strings.Replace(script, "events?.close()", "0", 1)
	case "loses the focus":
		script = strings.Replace(script, "if (at)", "if (at === 'order-id')", 1)
	}
	if r.PathValue("name") == "style.css" {
		w.Header().Set("Content-Type", "text/css")
		_, _ = w.Write([]byte(style))
		return
	}
	w.Header().Set("Content-Type", "text/javascript")
	_, _ = w.Write([]byte(script))
}

// view returns the view of a path.
func (s *standIn) view(r *http.Request, path string) view {
	v := view{standIn: s, Lang: "en", Path: path, Page: "action"}
	chosen := r.Header.Get("Accept-Language")
	if c, err := r.Cookie("lang"); err == nil {
		chosen = c.Value
	}
	if strings.HasPrefix(chosen, "zh") {
		v.Lang = "zh"
	}
	for page, p := range pagesOf {
		if p == path {
			v.Page = page
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := strings.CutPrefix(path, "/dead-letters/"); ok {
		v.Page, v.At = "dead-letter", at
		if n, err := strconv.Atoi(strings.TrimPrefix(at, "0/")); err == nil && n < len(s.letters) {
			v.Letter = &s.letters[n]
		}
	}
	v.Pending = map[string]letter{}
	cause, order := r.URL.Query().Get("cause"), r.PostFormValue("order")
	for n, l := range s.letters {
		if at := "0/" + strconv.Itoa(n); len(s.resolved[at]) == 0 && (cause == "" || cause == l.Cause) && (order == "" || order == l.Order) {
			v.Pending[at] = l
		}
	}
	return v
}

func (s *standIn) page(w http.ResponseWriter, r *http.Request) {
	v := s.view(r, r.URL.Path)
	if v.ID = r.FormValue("id"); v.Page == "delays" {
		v.ID = r.FormValue("category")
	}
	s.show(w, v)
}

func (s *standIn) show(w http.ResponseWriter, v view) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	policy := "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'"
	if s.fault != "in a frame" {
		policy += "; frame-ancestors 'none'"
	}
	if s.fault == "another host" {
		policy = strings.Replace(policy, "img-src", "img-src *", 1)
	}
	if s.fault != "not escaped" {
		w.Header().Set("Content-Security-Policy", policy)
	}
	if err := standInTemplate.Execute(w, v); err != nil {
		panic(err)
	}
}

// act shows an action, and carries it out if it is confirmed.
func (s *standIn) act(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && s.fault != "cross-site form" {
		http.Error(w, "another site", http.StatusForbidden)
		return
	}
	a := action{r.FormValue("kind"), r.FormValue("at"), "asked"}
	confirmed := r.FormValue("confirm") != ""
	if confirmed {
		a.State = "done"
	}
	if (confirmed || s.fault == "not confirmed") && s.fault != "does nothing" && a.Kind == "redrive" {
		s.mu.Lock()
		s.resolved[a.At] = append(s.resolved[a.At], "redriven")
		s.mu.Unlock()
	}
	v := s.view(r, r.URL.Path)
	v.Action = &a
	s.show(w, v)
}

// live sends the changing part of a page again and again.
func (s *standIn) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for s.fault != "not live" {
		path := r.URL.Query().Get("path")
		var part strings.Builder
		if err := standInTemplate.ExecuteTemplate(&part, "now", s.view(r, path)); err != nil {
			panic(err)
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", literal(part.String())); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
	<-r.Context().Done()
}

// recorder is a test whose failure is expected.
type recorder struct {
	testing.TB
	limit    time.Duration // of each step
	failure  string        // the first one
	cleanups []func()
}

func (r *recorder) Failed() bool { return false } // no screenshot of an expected failure

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }
func (r *recorder) Error(args ...any)                 { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Errorf("%s", fmt.Sprint(args...)) }

// run runs a check up to its first failure.
func (r *recorder) run(check func(testing.TB, world), w world) {
	in := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	in(func() { check(r, w) })
	for _, cleanup := range slices.Backward(r.cleanups) {
		in(cleanup)
	}
}

// Every check accepts a console without a fault.
func TestChecks_AcceptTheStandIn(t *testing.T) {
	t.Parallel()
	startChromium(t)
	for _, all := range []map[string]func(testing.TB, world){checks, hostileChecks} {
		runChecks(t, all, func(t testing.TB) world { return newStandIn(t, "") })
	}
}

// Each fault of a console makes a check fail with a message that names it.
func TestChecks_FindEachFault(t *testing.T) {
	t.Parallel()
	startChromium(t)
	english, dark, chinese := pages(look{}), pages(look{dark: true}), pages(look{lang: "zh-CN"})
	for _, test := range []struct {
		fault   string
		check   func(testing.TB, world)
		message string
		limit   time.Duration // of each step, if the check fails because a step does not end
	}{
		{"script error", english, "script error: Uncaught ReferenceError", 0},
		{"console error", english, "it does not work", 0},
		{"dialog", english, "a dialog opens: hello", 0},
		{"another host", english, "a request to another host: http://other.invalid/x.png", 0},
		{"inline script", english, "(security): Executing inline script violates", 0},
		{"low contrast", english, "color-contrast (serious)", 0},
		{"no label", english, "label (critical)", 0},
		{"no scope", english, "have no caption or scope", 0},
		{"too wide", english, "it is 2008 pixels wide on a screen of 1200; wider are: <div class=\"wide\">", 0},
		{"no viewport", onAPhone, "pixels wide on a screen of 375", 0},
		{"always light", dark, "its background is dark: false", 0},
		{"English only", chinese, `the text of nav[aria-label] is "`, 0},
		{"moves", pages(look{still: true}), "1 parts of it move", 0},
		{"needs scripts", withoutScripts, "Now does not say whether all is well", 0},
		{"no skip link", keyboard, "and not a link to #main", 0},
		{"no focus ring", keyboard, "it does not show that a#nav-", 0},
		{"unreachable", keyboard, `Tab does not reach <button tabindex="-1">`, 0},
		{"not live", updatesLive, "Now shows the new order: not so after", 10 * time.Second},
		{"takes the focus", updatesLive, "the update takes the focus or the text from the search", 0},
		{"loses the focus", updatesLive, `the update takes the focus from SUMMARY Partitions: got "BODY`, 0},
		{"keeps connections", comesBack, "deadline exceeded", 10 * time.Second},
		{"id in URL", findsAnOrder, "the order id is in the URL", 0},
		{"not confirmed", redrives, "nobody has confirmed it", 0},
		{"does nothing", redrives, "want redriven once", 0},
		{"not escaped", showsHostileOrders, "opens a page that does not show it", 0},
		{"not escaped", showsHostileLetters, "an element is injected: <img", 0},
		{"direction", showsHostileLetters, "the direction of a text is not isolated", 0},
		{"control characters", showsHostileLetters, "control characters are shown as they are", 0},
		{"in a frame", refusesAnotherSite, "another site may show the console in a frame", 0},
		{"cross-site form", refusesAnotherSite, "another site may ask for an action", 0},
	} {
		t.Run(test.fault, func(t *testing.T) {
			t.Parallel()
			r := &recorder{TB: t, limit: cmp.Or(test.limit, stepTimeout)}
			r.run(test.check, newStandIn(t, test.fault))
			if !strings.Contains(r.failure, test.message) {
				t.Errorf("the check fails with %q, want %q", short(r.failure), test.message)
			}
		})
	}
}
