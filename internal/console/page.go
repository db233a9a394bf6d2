package console

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/console/access"
	"github.com/orderclose/orderclose/internal/health"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/text"
)

// languageCookie keeps the language that a person has chosen.
const languageCookie = "orderclose-language"

// page is what every template gets. Its methods are what templates may call.
type page struct {
	c    *Console
	Name string // of the template and the page: now, order, …
	Lang string
	Zone *time.Location // of the moments on the page; nil: UTC
	Path string         // of the request, below the base path: where a form returns to
	Data any            // of the page
	User access.Identity
}

// MayAct reports whether the user may act.
func (p page) MayAct() bool { return p.User.Role == access.Operator }

// T returns a text of the catalogue in the page's language.
func (p page) T(key string, args ...any) string { return phrase(p.Lang, key, args...) }

// ProblemTitle returns what is wrong, in the page's language.
func (p page) ProblemTitle(of health.Problem) string {
	return p.T("problem." + string(of.Kind))
}

// Word returns the text of a value that has a few known values; any other value as it is.
func (p page) Word(group string, value any) string {
	if key := group + "." + fmt.Sprint(value); texts()[key] != nil {
		return p.T(key)
	}
	return p.Clean(fmt.Sprint(value))
}

// Say returns a sentence of internal/ops in the page's language.
func (p page) Say(s ops.Sentence) string {
	return text.OneLine(translate(p.Lang, s, p.Millis), 500)
}

// Title returns the title of the page.
func (p page) Title() string {
	if failed, ok := p.Data.(problem); ok && failed.status != http.StatusNotFound {
		return p.T("error.failed")
	}
	return p.T(p.Name + ".title")
}

// Base returns the beginning of each path.
func (p page) Base() string { return p.c.o.Settings.BasePath }

// Version returns the version of the program.
func (p page) Version() string { return p.c.o.Version }

// Navigation returns the pages in the order of the menu.
func (page) Navigation() []navigation {
	return []navigation{{"now", "/"}, {"order", "/order"}, {"dead-letters", "/dead-letters"},
		{"delays", "/delays"}, {"payments", "/payments"}, {"runbook", "/runbook"}}
}

type navigation struct{ Name, Path string }

// Languages returns the languages that the page can be shown in.
func (page) Languages() []string { return languages }

// Length formats a duration as topics.yaml has it.
func (page) Length(d time.Duration) string { return config.FormatDuration(d) }

// Rule returns a rule of the delays in words.
func (page) Rule(r orderclose.Rule) string { return config.DescribeRule(r) }

// Lasted formats a number of milliseconds.
func (page) Lasted(ms int64) string {
	return config.FormatDuration(time.Duration(ms) * time.Millisecond)
}

// Seconds formats a number of seconds for people: 350ms, 4.2s, 3m20s.
func (page) Seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d == 0:
		return "0"
	case d < time.Second:
		return config.FormatDuration(d.Round(time.Millisecond))
	case d < 10*time.Second:
		return config.FormatDuration(d.Round(100 * time.Millisecond))
	}
	return config.FormatDuration(d.Round(time.Second))
}

// Count formats a number with groups of three digits.
func (page) Count(n any) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Brief formats a number for little room: 2.4, 17, 12k, 3M.
func (p page) Brief(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(math.Round(10*v)/10, 'f', -1, 64)
	case v < 1e4:
		return p.Count(int64(v))
	case v < 1e7:
		return p.Count(int64(v/1e3)) + "k"
	}
	return p.Count(int64(v/1e6)) + "M"
}

// Part returns what a template needs that shows a part of the page.
func (p page) Part(kind string, data any) any {
	return struct {
		Page page
		Kind string
		Data any
	}{p, kind, data}
}

// Long is Clean for a long text, such as the value of a record.
func (page) Long(s string) string { return text.OneLine(s, 64<<10) }

// Plain reports whether a text has nothing that Clean replaces. Only such texts become values of
// fields.
func (p page) Plain(s string) bool { return p.Clean(s) == s }

// ValidOrder reports whether a text can be the id of an order.
func (p page) ValidOrder(id string) bool { return orderclose.ValidateID(id) == nil && p.Plain(id) }

// LateKinds returns the kinds of actions for late payments.
func (page) LateKinds() []string { return []string{kindRefunded, kindReopened} }

// Lines returns the lines of a text, such as of several errors.
func (page) Lines(s string) []string { return strings.Split(s, "\n") }

// Clean replaces what could hide or reorder the text around it: control characters, and marks that
// change the direction of text. It cuts a text that is longer than 300 characters.
func (page) Clean(s string) string { return text.OneLine(s, 300) }

// templates returns, for each page, its template with the layout. Programs that show no page do not parse them.
var templates = sync.OnceValue(func() map[string]*template.Template {
	all := map[string]*template.Template{}
	layout := template.Must(template.ParseFS(files, "templates/layout.html", "templates/parts.html"))
	for _, name := range []string{"now", "order", "delays", "payments", "dead-letters", "dead-letter", "action", "runbook", "error"} {
		all[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+name+".html"))
	}
	return all
})

func (c *Console) newPage(r *http.Request, name string, data any) page {
	chosen := ""
	if cookie, err := r.Cookie(languageCookie); err == nil {
		chosen = cookie.Value
	}
	return page{c: c, Name: name, Lang: languageOf(chosen, r.Header.Get("Accept-Language")), Zone: zoneOf(r), Path: r.URL.Path, Data: data,
		User: access.From(r.Context())}
}

func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, p page) {
	c.renderPart(w, r, status, p, "layout.html")
}

// renderPart writes a part of a page, whole or not at all. The part layout.html is the page.
func (c *Console) renderPart(w http.ResponseWriter, r *http.Request, status int, p page, part string) {
	var body bytes.Buffer
	if err := templates()[p.Name].ExecuteTemplate(&body, part, p); err != nil {
		c.o.Logger.Error("render a page", "page", p.Name, "err", err)
		http.Error(w, "this page cannot be shown; the log of the console has the reason", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Language", p.Lang)
	w.Header().Set("Vary", "Accept-Language, Cookie")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, text.Harmless(body.String())) // also of values that a template shows without Clean
	}
}

// problem is the data of the page that says why there is no page.
type problem struct {
	Key    string // of the catalogue
	Detail string // such as an error; empty: none
	status int    // of the answer
}

func (c *Console) renderProblem(w http.ResponseWriter, r *http.Request, status int, key, detail string) {
	c.render(w, r, status, c.newPage(r, "error", problem{key, detail, status}))
}

// show returns the handler of a page. data returns the data of the page.
func (c *Console) show(name string, data func(*http.Request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c.render(w, r, http.StatusOK, c.newPage(r, name, data(r)))
	}
}

func (c *Console) serveNotFound(w http.ResponseWriter, r *http.Request) {
	c.renderProblem(w, r, http.StatusNotFound, "error.not_found", "")
}

// formed returns a handler that parses the form of a POST before serve. If it cannot, it answers the request itself.
func (c *Console) formed(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.ParseForm() != nil {
			c.renderProblem(w, r, http.StatusBadRequest, "error.form", "")
			return
		}
		serve(w, r)
	}
}

// keepChoice returns a handler that keeps the choice of a person in a cookie, and returns to the page.
// valid returns the choice that holds for the value of the field.
func (c *Console) keepChoice(cookie, field string, valid func(value string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{
			Name: cookie, Value: valid(r.PostFormValue(field)), Path: cmp.Or(c.o.Settings.BasePath, "/"),
			MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		http.Redirect(w, r, c.o.Settings.BasePath+localPath(r.PostFormValue("path")), http.StatusSeeOther)
	}
}

// localPath returns a path of this console: the given one, or / if it leads elsewhere.
func localPath(p string) string {
	// Browsers skip a tab.
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsAny(p, "\\?#") || strings.ContainsFunc(p, unicode.IsControl) {
		return "/"
	}
	return path.Clean(p)
}
