package consoletest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
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
// keeps pages that were left by a form: their live updates must end, or the next page never arrives.
func comesBack(t testing.TB, w *serve) {
	b := open(t, w, look{})
	for range 10 {
		b.goTo("/")
		b.searchOrder("many-visits")
	}
}

// findsAnOrder searches an order that is closed, one that waits, and one that does not exist.
func findsAnOrder(t testing.TB, w *serve) {
	w.create(t, "found-closed", "soon")
	w.create(t, "found-waiting", "later")
	w.awaitClose(t, "found-closed")
	b := open(t, w, look{})
	b.goTo("/")
	b.searchOrder("found-closed")
	if times := eval[int](b, `document.querySelectorAll("main time[datetime]").length`); times < 3 {
		t.Errorf("the timeline has %d times, and the order was created, due and closed:\n%s", times, b.text("main"))
	}
	for _, word := range []string{"created", "closed"} {
		text := b.text("main")
		expect.That(t, strings.Contains(strings.ToLower(text), word), "the page does not say that the order was %s:\n%s", word, text)
	}
	b.accessible("a closed order")
	b.searchOrder("found-waiting")
	if text := b.text("main"); !strings.Contains(text, "delay_6h") {
		t.Errorf("the timeline does not say in which bucket the order waits:\n%s", text)
	}
	b.searchOrder("found-nowhere")
	status := b.lastStatus()
	expect.That(t, status < 500, "an unknown order: status %d", status)
	b.accessible("an unknown order")
}

// listsDeadLetters finds dead letters in the list, by their cause, and by their order.
func listsDeadLetters(t testing.TB, w *serve) {
	first := w.giveUp(t, letter{Order: "listed-first", Cause: "not_found"})
	second := w.giveUp(t, letter{Order: "listed-second", Cause: "refused", Stage: "outbox"})
	shown := func(at string) string { return `document.querySelector('tr[data-at="` + at + `"]') !== null` }
	b := open(t, w, look{})
	b.goTo("/dead-letters")
	b.waitReloading("both are listed", shown(first)+" && "+shown(second))
	for _, at := range []string{first, second} {
		text := b.text(`tr[data-at="` + at + `"]`)
		expect.That(t, strings.Contains(text, "listed-"), "the row of %s does not name its order: %s", at, text)
	}
	b.goTo("/dead-letters?cause=not_found")
	b.waitReloading("one has the cause", shown(first)+" && !"+shown(second))

	b.goTo("/dead-letters")
	b.searchLetters("listed-second")
	if !eval[bool](b, shown(second)+" && !"+shown(first)) {
		t.Errorf("the search for the second dead letter shows:\n%s", b.text("main"))
	}
	b.leaves("open the dead letter", func() { b.click(`tr[data-at="` + second + `"] a[href$="/dead-letters/` + second + `"]`) })
	text := b.text("main")
	for _, part := range []string{"listed-second", "refused", "the database refuses the order", "outbox"} {
		expect.That(t, strings.Contains(text, part), "the page of the dead letter does not show %q:\n%s", part, text)
	}
	b.accessible("a dead letter")
}

// searchLetters searches the dead letters of an order, on their page.
func (b *tab) searchLetters(order string) {
	b.t.Helper()
	b.leaves("search dead letters", func() {
		b.fill("main form[method=post] input[name=order]", order)
		b.press(kb.Enter)
	})
}

// redrives asks for the redrive of one dead letter, and confirms it.
func redrives(t testing.TB, w *serve) {
	w.create(t, "redriven", "later")
	at := w.giveUp(t, letter{Order: "redriven"})
	b := open(t, w, look{})
	b.goTo("/dead-letters")
	b.waitReloading("it is listed", `document.querySelector('tr[data-at="`+at+`"]') !== null`)
	b.openLetter(at)
	b.ask("redrive")
	b.waitFor("asked")
	text := b.text("#action")
	expect.That(t, strings.Contains(text, "redriven") || strings.Contains(text, at), "the page does not say which dead letter is redriven:\n%s", text)
	have := w.resolutions(t, at)
	expect.That(t, len(have) <= 0, "the dead letter is %v, and nobody has confirmed it", have)
	b.accessible("a question")
	b.confirm()
	b.accessible("a result")
	if have := w.resolutions(t, at); !slices.Equal(have, []string{"redriven"}) {
		t.Errorf("the dead letter is %v, want redriven once", have)
	}
	b.goTo("/dead-letters")
	b.waitReloading("it is listed no more", `document.querySelector('tr[data-at="`+at+`"]') === null`)
}

// discards asks and confirms that one dead letter is discarded.
func discards(t testing.TB, w *serve) {
	at := w.giveUp(t, letter{Order: "discarded", Cause: "refused"})
	b := open(t, w, look{})
	b.openLetter(at)
	b.ask("discard")
	b.waitFor("asked")
	b.accessible("a discard to confirm")
	b.confirm()
	have := w.resolutions(t, at)
	expect.That(t, slices.Equal(have, []string{"discarded"}), "the dead letter is %v, want discarded once", have)
	b.openLetter(at)
	b.waitReloading("nobody can handle it again", `!document.querySelector("#act-redrive, #act-discard")`)
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
	listed(false)
	b.goTo("/delays")
	b.fill("#pause-category", "tomorrow")
	b.fill("#pause-reason", "<b>a reason</b>")
	b.ask("pause")
	b.waitFor("asked")
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
	// The browser blocks the requests of the page, and not those of the worker that all tabs share.
	b.do("take the worker away", command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: "delete window.SharedWorker"}))
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
		if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the context of this call
			t.Fatal(err)
		}
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

// signsIn asks without a password and with a wrong one, and signs in as a viewer and as an operator: the browser
// answers the proxy's challenge, and sends the password with all that follows.
func signsIn(t testing.TB, w *serve) {
	for _, password := range []string{"", "not-the-password-of-anybody"} {
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, w.url()+"/", nil))(t)
		if password != "" {
			r.SetBasicAuth("operator", password)
		}
		answer := must.Get(anyCertificate.Do(r))(t)
		answer.Body.Close()
		expect.That(t, answer.StatusCode == http.StatusUnauthorized && strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic "),
			"password %q: %s %v", password, answer.Status, answer.Header)
	}
	for role, password := range passwords {
		b := openSignedOut(t, w, look{})
		b.do("sign in", chromedp.Navigate(strings.Replace(w.url(), "://", "://"+role+":"+password+"@", 1)+"/"))
		b.goTo("/")
		if !b.has(`main[data-page="now"]`) {
			t.Errorf("the password of a %s does not open Now:\n%s", role, b.text("body"))
		}
		b.goTo("/delays")
		expect.Equal(t, b.has("[name=kind]"), (role == "operator"), "the page shows actions to a %s", role)
	}
}
