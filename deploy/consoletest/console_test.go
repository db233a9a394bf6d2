package consoletest

import (
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// checks are all checks of a console, by name.
var checks = map[string]func(testing.TB, *serve){
	"pages, still":    pages(look{lang: "zh-CN", dark: true, still: true}),
	"without scripts": withoutScripts,
	"keyboard":        keyboard,
	"live":            updatesLive,
	"many visits":     comesBack,
	"order":           findsAnOrder,
	"another site":    refusesAnotherSite,
	"pause":           pauses,
	"lost connection": losesTheConsole,
	"zone":            switchesZone,
	"many tabs":       sharesConnections,
	"nothing cut":     cutsNothing,
}

// Every page is checked in both languages and themes, on a phone, a tablet and a desktop.
func init() {
	for _, lang := range []string{"en", "zh-CN"} {
		for _, dark := range []bool{false, true} {
			for _, width := range []int64{phone, 768, 1440} {
				l := look{lang: lang, dark: dark, width: width}
				checks["pages, "+l.name()] = pages(l)
			}
		}
	}
}

// proxiedChecks are those of a console behind a proxy with TLS, below a path.
var proxiedChecks = map[string]func(testing.TB, *serve){
	"pages":           pages(look{}),
	"without scripts": withoutScripts,
	"live":            updatesLive,
	"order":           findsAnOrder,
}

// hostileChecks are checks that fill the console with hostile texts.
var hostileChecks = map[string]func(testing.TB, *serve){"hostile orders": showsHostileOrders, "hostile dead letters": showsHostileLetters}

// atEnd is called after all tests.
var atEnd = []func() error{stopChromium}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, do := range atEnd {
		if err := do(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func TestConsole(t *testing.T) {
	t.Parallel()
	startChromium(t)
	runChecks(t, checks, startServe(t, serveTopics, httptest.NewServer))
}

// The proxy has TLS, and the console is below a path.
func TestConsole_BelowAPathWithTLS(t *testing.T) {
	t.Parallel()
	startChromium(t)
	s := startServe(t, serveTopics, httptest.NewTLSServer, "ORDERCLOSE_CONSOLE_BASE_PATH=/ops/orderclose")
	must.That(t, strings.HasPrefix(s.url(), "https://") && strings.HasSuffix(s.url(), "/ops/orderclose"), "the console is at %s", s.url())
	runChecks(t, proxiedChecks, s)
}

func TestConsole_ShowsHostileTextsHarmless(t *testing.T) {
	t.Parallel()
	startChromium(t)
	runChecks(t, hostileChecks, startServe(t, serveTopics, httptest.NewServer))
}

// runChecks runs checks side by side.
func runChecks(t *testing.T, checks map[string]func(testing.TB, *serve), s *serve) {
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, s)
		})
	}
}

// TestConsole_Screenshots takes the screenshots of the documents. UPDATE_SCREENSHOTS=1 writes them to docs/images.
func TestConsole_Screenshots(t *testing.T) {
	t.Parallel()
	startChromium(t)
	s := startServe(t, "", httptest.NewServer)
	closed := "ORD-20260301-000017"
	s.create(t, closed, "flash-sale")
	for i := range 60 {
		s.create(t, fmt.Sprintf("ORD-20260301-%06d", 100+i), []string{"physical", "virtual", "furniture", "physical"}[i%4])
	}
	s.awaitClose(t, closed)
	pages := map[string]string{"order": "/order", "dead-letters": "/dead-letters"}
	for i, l := range []letter{
		{Cause: "not_found", Detail: "the database has no such order"}, {Cause: "failed", Detail: "sku \"ink\" has no row in the table of stock"},
		{Cause: "bad_value", Detail: "due_at is missing", Value: `{"order_id":"ORD-20260301-000204"}`},
		{Cause: "too_large", Stage: "outbox", Source: "outbox_events", Detail: "the topic refuses it"},
	} {
		l.Order = fmt.Sprintf("ORD-20260301-%06d", 201+i)
		s.giveUp(t, l)
	}
	for _, l := range []look{{}, {dark: true}} {
		b := open(t, s, l)
		for page, path := range pages {
			b.goTo(path)
			if page == "order" {
				b.searchOrder(closed)
			}
			if page == "dead-letters" {
				b.waitReloading("all dead letters", `document.querySelectorAll("tr[data-at]").length === 4`)
			}
			screenshot := b.screenshot()
			expect.AtMost(t, len(screenshot), 200_000, "bytes of the screenshot of %s", page)
			name := "console-" + page + map[bool]string{true: "-dark.png", false: ".png"}[l.dark]
			if os.Getenv("UPDATE_SCREENSHOTS") == "1" {
				must.Do(t, os.MkdirAll("../../docs/images", 0o755))
				must.Do(t, os.WriteFile("../../docs/images/"+name, screenshot, 0o644))
			}
		}
	}
}
