package consoletest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// pagesOf maps each page in the navigation to its path.
var pagesOf = map[string]string{
	"now": "/", "order": "/order", "dead-letters": "/dead-letters", "delays": "/delays",
	"payments": "/payments", "runbook": "/runbook",
}

// pages returns a check of every page for a reader with this look.
func pages(l look) func(testing.TB, *serve) {
	return func(t testing.TB, w *serve) {
		order := "pages-" + l.name() + "-"
		order += strings.Repeat("x", 64-len(order)) // as long as an id may be
		w.create(t, order, "later")
		b := open(t, w, l)
		for name, path := range pagesOf {
			b.goTo(path)
			b.isPage(w, name, l)
			expect.That(t, eval[int](b, `document.querySelectorAll('nav a[aria-current="page"]').length`) == 1 && b.has(`#nav-`+name+`[aria-current="page"]`),
				"%s: the navigation does not show which page is open", path)
		}
		b.goTo("/order")
		b.searchOrder(order)
		b.isPage(w, "order", l)
		b.openLetter(w.giveUp(t, letter{Order: order}))
		b.isPage(w, "", l)
	}
}

// isPage checks what holds for every page of the console. An empty name stands for any page.
func (b *tab) isPage(w *serve, name string, l look) {
	t := b.t
	t.Helper()
	where := fmt.Sprintf("page %s, %s", name, l.name())
	have := eval[string](b, `document.querySelector("main#main").dataset.page`)
	expect.That(t, name == "" || have == name, "%s: its main element is of the page %q", where, have)
	expect.That(t, eval[string](b, `document.title`) != "", "%s: no title", where)
	for page := range pagesOf {
		expect.That(t, b.has("nav[aria-label] a#nav-"+page), "%s: no link to the page %s", where, page)
	}
	expect.That(t, b.has("form#search input#order-id"), "%s: no search for an order", where)
	b.isInLanguage(where, l)
	expect.Equal(t, eval[bool](b, isDark), l.dark, "%s: its background is dark", where)
	moving := eval[int](b, `document.getAnimations().length`)
	expect.That(t, !l.still || moving <= 0, "%s: %d parts of it move, and the reader prefers reduced motion", where, moving)
	unnamed := eval[int](b, `document.querySelectorAll("table:not(:has(caption)), th:not([scope])").length`)
	expect.That(t, unnamed <= 0, "%s: %d tables or headers have no caption or scope", where, unnamed)
	b.fits(where)
	b.accessible(where)
}

func (b *tab) isInLanguage(where string, l look) {
	t := b.t
	t.Helper()
	want, chinese := "en", strings.HasPrefix(l.lang, "zh")
	if chinese {
		want = "zh"
	}
	expect.Equal(t, eval[string](b, `document.documentElement.lang`), want, "%s: its language", where)
	for _, selector := range []string{"nav[aria-label]", "main h1"} {
		text := b.text(selector)
		expect.That(t, hasChinese(text) == chinese, "%s: the text of %s is %q", where, selector, text)
	}
}

func hasChinese(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r >= 0x4e00 && r <= 0x9fff })
}

// isDark says whether the background of the page is dark.
const isDark = `(() => {
	const canvas = document.createElement("canvas").getContext("2d");
	for (const e of [document.body, document.documentElement]) {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = getComputedStyle(e).backgroundColor;
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b, alpha] = canvas.getImageData(0, 0, 1, 1).data;
		if (alpha > 0) return 0.2126*r + 0.7152*g + 0.0722*b < 128;
	}
	return matchMedia("(prefers-color-scheme: dark)").matches && getComputedStyle(document.documentElement).colorScheme.includes("dark");
})()`

// fits checks that the page does not scroll sideways. A page that is wider than a phone, or has no viewport for
// phones, makes the window of a phone wider than its screen.
func (b *tab) fits(where string) {
	b.t.Helper()
	if have := eval[int64](b, `Math.max(document.documentElement.scrollWidth, innerWidth)`); have > b.width {
		b.t.Errorf("%s: it is %d pixels wide on a screen of %d; wider are: %s", where, have, b.width, eval[string](b, `[...document.querySelectorAll("body *")]
			.filter(e => e.getBoundingClientRect().right > `+literal(b.width)+`).slice(0, 5).map(e => e.cloneNode(false).outerHTML).join(" ")`))
	}
}

// withoutScripts reads Now, searches an order, and switches the language, with scripts disabled.
func withoutScripts(t testing.TB, w *serve) {
	w.create(t, "no-scripts", "later")
	b := open(t, w, look{noScripts: true})
	b.goTo("/")
	expect.That(t, b.text("#verdict") != "" && b.has(`#verdict[role=status]:is([data-state=well], [data-state=today], [data-state=urgent], `+
		`[data-state=unknown])`), "Now does not say whether all is well")
	expect.That(t, b.text(`main tr[data-topic="delay_6h"]`) != "", "Now does not show the buckets")
	b.leaves("search", func() {
		b.fill("#search #order-id", "no-scripts")
		b.click("#search button")
	})
	expect.That(t, strings.Contains(b.text(`main[data-page="order"]`), "no-scripts"), "the search does not show the order:\n%s", b.text("body"))
	b.goTo("/delays")
	b.leaves("switch the language", func() { b.click(`#language button[value="zh"]`) })
	b.isInLanguage("after the switch", look{lang: "zh"})
	expect.That(t, b.has(`main[data-page="delays"]`), "the switch of the language opens another page")
	at := w.giveUp(t, letter{Order: "no-scripts-letter"})
	b.goTo("/dead-letters")
	b.waitReloading("the dead letter", `document.querySelector('tr[data-at="`+at+`"]') !== null`)
	b.isInLanguage("the next page", look{lang: "zh"})
	b.leaves("switch back", func() { b.click(`#language button[value="en"]`) })
	b.isInLanguage("after the switch back", look{})
}

// switchesZone switches to the zone of the browser and back. It holds for what is shown and for what is typed.
func switchesZone(t testing.TB, w *serve) {
	b := open(t, w, look{})
	b.do("be in Shanghai", command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"}))
	b.goTo("/dead-letters")
	expect.That(t, b.text("#times") == "Times: UTC" && b.has(`#zone [value=UTC][aria-pressed=true]`), "the page begins in %q", b.text("#times"))
	b.leaves("switch the zone", func() { b.click(`#zone button[value="Asia/Shanghai"]`) })
	expect.That(t, b.text("#times") == "Times: Asia/Shanghai, UTC+08:00" && b.has(`main[data-page="dead-letters"]`),
		"after the switch the page has %q", b.text("#times"))
	b.accessible("a page in another zone")
	eval[chromedp.Void](b, `document.querySelector("#since").value = "2026-11-22 21:41"`)
	b.leaves("send a moment", func() { b.click("#filter button") })
	expect.Equal(t, eval[string](b, `document.querySelector("#since").value`), "2026-11-22T21:41:00+08:00", "the moment")
	b.goTo("/delays")
	eval[chromedp.Void](b, `document.querySelector("#pause-for").value = "later"; document.querySelector("#pause-reason").value = "a test"`)
	b.leaves("send a wrong time", func() { b.click("#act-pause button") })
	expect.That(t, b.has("#refused"), "the form is not refused:\n%s", b.text("main"))
	b.accessible("a form that was refused")
	b.leaves("switch back", func() { b.click(`#zone button[value=UTC]`) })
	expect.Equal(t, b.text("#times"), "Times: UTC", "after the switch back the page")
}

// cutsNothing checks that each text of a chart, and on a phone each cell of a table that does not say that it scrolls, is inside of the window.
func cutsNothing(t testing.TB, w *serve) {
	for _, width := range []int64{phone, 1200} {
		b := open(t, w, look{width: width})
		for _, path := range pagesOf {
			b.goTo(path)
			for _, cut := range eval[[]string](b, `[...document.querySelectorAll(".chart text, .stack td, .stack tbody th, form label, form input")].filter(e => {
				const box = e.getBoundingClientRect();
				return box.width > 1 && e.checkVisibility() && (box.left < 0 || box.right > document.documentElement.clientWidth);
			}).map(e => e.outerHTML.slice(0, 200))`) {
				t.Errorf("%s, %d pixels: outside of the window: %s", path, width, cut)
			}
		}
	}
}

// focused describes the element that has the keyboard's focus.
type focused struct {
	Name    string // of the element, with its id
	Text    string
	Visible bool // it is in the window, and looks other than without the focus
}

// placeOf is a function that returns where an element is in the document.
const placeOf = `const placeOf = e => {
	const path = [];
	for (; e.parentElement; e = e.parentElement) path.unshift([...e.parentElement.children].indexOf(e));
	return path.join("/");
};`

// readPlace returns where the focus is, or the place of body.
const readPlace = `(() => {
	` + placeOf + `
	return placeOf(document.activeElement);
})()`

const readFocus = `(() => {
	const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
	const ring = () => [style.outlineStyle === "none" || style.outlineWidth === "0px" ? "" : style.outline, style.boxShadow, style.border,
		style.backgroundColor].join();
	const inside = box.width > 0 && box.height > 0 && box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight;
	const on = ring();
	e.blur();
	const off = ring();
	e.focus({preventScroll: true});
	return {Name: e.localName + (e.id && "#" + e.id), Text: (e.innerText || e.value || "").slice(0, 40), Visible: inside && on !== off};
})()`

// findMissed returns what a person can use and did not visit. Of radio buttons Tab visits one.
const findMissed = `(() => {
	` + placeOf + `
	return [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
		.filter(e => !e.disabled && e.type !== "radio" && e.checkVisibility({visibilityProperty: true}) && !visited.includes(placeOf(e)))
		.map(e => e.cloneNode(true).outerHTML.slice(0, 200));
})()`

// keyboard walks through pages with the Tab key. It must reach the skip link first, then all that can be
// used, and must show where it is. Without scripts, so that no update changes the page meanwhile.
func keyboard(t testing.TB, w *serve) {
	b := open(t, w, look{noScripts: true})
	paths := []string{"/", "/order", "/delays"}
	at := w.giveUp(t, letter{Order: "keyboard-letter"})
	b.openLetter(at)
	paths = append(paths, "/dead-letters", "/dead-letters/"+at)
	for _, path := range paths {
		b.goTo(path)
		visited := []string{eval[string](b, readPlace)} // body
		for range 500 {
			b.press(kb.Tab)
			place := eval[string](b, readPlace)
			if place == visited[len(visited)-1] {
				continue // the next part of a date
			}
			if slices.Contains(visited, place) {
				break
			}
			f := eval[focused](b, readFocus)
			expect.That(t, f.Visible, "%s: it does not show that %s (%s) has the focus", path, f.Name, f.Text)
			visited = append(visited, place)
		}
		for _, missed := range eval[[]string](b, strings.Replace(findMissed, "visited", literal(visited), 1)) {
			t.Errorf("%s: Tab does not reach %s", path, missed)
		}
	}

	// The skip link is the first, and leads past the navigation.
	b.goTo("/")
	b.press(kb.Tab)
	expect.Equal(t, eval[string](b, `document.activeElement.getAttribute("href") ?? ""`), "#main", "Tab first reaches a link to")
	b.press(kb.Enter)
	b.press(kb.Tab)
	expect.That(t, eval[bool](b, `(document.querySelector("main").compareDocumentPosition(document.activeElement) & (Node.DOCUMENT_POSITION_CONTAINED_BY | `+
		`Node.DOCUMENT_POSITION_FOLLOWING)) !== 0`), "after the skip link Tab reaches %+v", eval[focused](b, readFocus))
}

// axeScript reads axe-core from the folder into which install.sh puts it.
var axeScript = sync.OnceValues(func() (string, error) {
	home, err := exec.Command("bash", "-c", ". ../native/lib.sh && axe_home").Output()
	if err != nil {
		return "", err
	}
	script, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(home)), "axe.min.js"))
	return string(script), err
})

// violation is a rule of axe-core that a page does not keep.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// runAxe runs all rules, and returns the violations that keep people from using the page.
const runAxe = `axe.run(document, {resultTypes: ["violations"]}).then(found => JSON.stringify(
	found.violations.filter(v => v.impact === "serious" || v.impact === "critical")))`

// accessible checks the page by the rules of axe-core. They run in a world of their own, which the
// page's content security policy does not bind, and which leaves nothing in the page.
func (b *tab) accessible(where string) {
	b.t.Helper()
	script := must.Get(axeScript())(b.t)
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	text, err := chromedp.Run(ctx, func(ctx context.Context, target *chromedp.Target) (string, error) {
		tree, err := cdp.Call(ctx, target, page.GetFrameTree, cdp.Empty{})
		if err != nil {
			return "", err
		}
		world, err := cdp.Call(ctx, target, page.CreateIsolatedWorld, page.CreateIsolatedWorldParams{FrameID: tree.FrameTree.Frame.ID})
		if err != nil {
			return "", err
		}
		inWorld := func(p *runtime.EvaluateParams) { p.ContextID = world.ExecutionContextID }
		if _, err := chromedp.Evaluate[chromedp.Void](script+"; null", inWorld)(ctx, target); err != nil {
			return "", err
		}
		return chromedp.Evaluate[string](runAxe, inWorld, chromedp.EvalAwaitPromise)(ctx, target)
	})
	must.That(b.t, err == nil, "%s: axe-core: %v", where, err)
	var found []violation
	must.Do(b.t, json.Unmarshal([]byte(text), &found))
	for _, v := range found {
		for _, n := range v.Nodes {
			b.t.Errorf("%s: %s (%s): %s\n  %s\n  %s", where, v.ID, v.Impact, v.Help, short(n.HTML), n.FailureSummary)
		}
	}
}
