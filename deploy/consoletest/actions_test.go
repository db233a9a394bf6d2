package consoletest

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// updatesLive watches Now while an order is created: the row of its bucket changes, without a new
// page, and a reader who types loses neither text nor focus.
func updatesLive(t testing.TB, w *serve) {
	b := open(t, w, look{})
	b.goTo("/")
	row := `document.querySelector('tr[data-topic="delay_12h"] td').innerText`
	b.fill("#search #order-id", "half an id")
	before := eval[string](b, row)
	eval[chromedp.Void](b, `window.isStillThis = true`)
	w.create(t, "live-order", "tomorrow")
	b.wait("Now shows the new order", `window.isStillThis && `+row+` !== `+literal(before))
	expect.That(t, eval[string](b, `document.activeElement.id + "=" + document.activeElement.value`) == "order-id=half an id",
		"the update takes the focus or the text from the search")
	b.accessible("Now, updated")

	// A reader whose focus is in the part that changes goes on there. Tables come and go with other checks' orders.
	before = eval[string](b, row)
	const focused = `(e => [e.tagName, e.textContent].join(" "))(document.activeElement)`
	// in one step: an update may come between two
	at := eval[string](b, `(() => { document.querySelector("#live summary").focus(); return `+focused+` })()`)
	must.That(t, strings.HasPrefix(at, "SUMMARY "), "the focus is on %s, not on the summary", at)
	w.create(t, "live-order-2", "tomorrow")
	b.wait("Now shows one more order", row+` !== `+literal(before))
	expect.Equal(t, eval[string](b, focused), at, "the update takes the focus from %s", at)
}

// comesBack searches an order from Now, again and again. A browser has six connections to a host, and
// keeps pages that were left by a form: their updates must end, or the next page never arrives.
func comesBack(t testing.TB, w *serve) {
	b := open(t, w, look{})
	for range 10 {
		b.goTo("/")
		b.searchOrder("many-visits")
	}
}

// findsAnOrder searches an order that is closed, one that waits, and one that does not exist.
func findsAnOrder(t testing.TB, w *serve) {
	w.create(t, "found-first", "soon")
	w.create(t, "found-second", "later")
	w.awaitClose(t, "found-first")
	b := open(t, w, look{})
	b.goTo("/")
	for order, says := range map[string]string{"found-first": "closed", "found-second": "delay_6h", "found-nowhere": "found-nowhere"} {
		b.searchOrder(order)
		text := b.text("main")
		expect.That(t, b.lastStatus() < 500 && strings.Contains(strings.ToLower(text), says), "%s: status %d, and the page does not say %s:\n%s",
			order, b.lastStatus(), says, text)
		b.accessible(order)
	}
}

// searchLetters searches the dead letters of an order, on their page.
func (b *tab) searchLetters(order string) {
	b.t.Helper()
	b.leaves("search dead letters", func() {
		b.fill("main form[method=post] input[name=order]", order)
		b.press(kb.Enter)
	})
}

// pauses pauses the closing of a category whose orders are not due for hours, sees the pause on Now, and ends it.
func pauses(t testing.TB, w *serve) {
	b := open(t, w, look{})
	listed := func(want bool) {
		t.Helper()
		b.goTo("/delays")
		b.waitReloading("the pause", literal(want)+` === (document.querySelector("#pauses")?.innerText ?? "").includes("<b>a reason</b>")`)
	}
	b.goTo("/delays")
	b.fill("#pause-category", "tomorrow")
	b.fill("#pause-reason", "<b>a reason</b>")
	b.ask("pause")
	b.waitFor("asked")
	b.accessible("a pause to confirm")
	b.confirm()
	listed(true)
	b.accessible("a pause")
	phone := open(t, w, look{width: phone})
	phone.goTo("/delays")
	phone.fits("a pause on a phone")
	b.goTo("/")
	b.wait("Now shows the pause", `document.querySelector('#problems [data-kind="closing_paused"]') !== null`)
	b.leaves("go to the pause", func() { // an update may replace the link at any time
		eval[chromedp.Void](b, `document.querySelector('#problems [data-kind="closing_paused"] a[href*="/delays"]').click()`)
	})
	b.ask("resume")
	b.waitFor("asked")
	b.confirm()
	listed(false)
}

// losesTheConsole looks at Now while the console cannot be reached: the page says so, until it can.
func losesTheConsole(t testing.TB, w *serve) {
	b := open(t, w, look{})
	block := func(on bool) {
		b.do("block updates", command(network.SetBlockedURLs,
			network.SetBlockedURLsParams{URLPatterns: []*network.BlockPattern{{URLPattern: w.url() + "/live*", Block: on}}}))
	}
	const warns = `document.querySelector("#lost").checkVisibility()`
	block(true)
	b.goTo("/")
	expect.That(t, !eval[bool](b, warns), "the page warns before it has tried")
	b.wait("the page warns", warns)
	b.accessible("Now without updates")
	b.seen() // the browser reports the requests
	block(false)
	b.wait("the page warns no more", "!"+warns)
	b.seen()
}

// sharesConnections opens Now in more tabs than a browser has connections to a host. All of them load, and all of them are kept up to date.
func sharesConnections(t testing.TB, w *serve) {
	b := openSignedOut(t, w, look{})
	b.do("sign in", chromedp.Navigate(strings.Replace(w.url(), "://", "://operator:"+passwords["operator"]+"@", 1)+"/"))
	tabs := []*tab{b}
	for range 9 {
		ctx, cancel := chromedp.NewContext(b.ctx)
		t.Cleanup(cancel)
		tabs = append(tabs, &tab{t: t, ctx: ctx, base: b.base})
		must.Do(t, chromedp.Do(ctx)) // the tab lives as long as the context of this call
	}
	waits := func(i int) string { return tabs[i].text(`tr[data-topic="delay_12h"] td`) }
	before := make([]string, len(tabs))
	for i, other := range tabs {
		other.do("look at it", command(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}))
		other.do("open Now", chromedp.Navigate(w.url()+"/"))
		before[i] = waits(i)
	}
	w.create(t, "many-tabs", "tomorrow")
	for i, other := range tabs {
		other.wait("a tab is up to date", `document.querySelector('tr[data-topic="delay_12h"] td').innerText !== `+literal(before[i])+
			` && document.querySelector("#lost").hidden`)
	}
}
