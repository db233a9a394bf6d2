package consoletest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// hostileTexts are valid order ids and categories (1 to 64 bytes of UTF-8 without control characters) that attack a page which does not escape them, in
// an element, an attribute, a script or a URL; or that reverse the text that follows them. An element that they inject has the attribute data-hostile.
var hostileTexts = []string{
	`"><img src=x onerror=alert(1) data-hostile>`,
	`<script data-hostile>hostile=1;alert(2)</script>`,
	`</title></textarea></pre><svg onload=alert(3) data-hostile>`,
	`' autofocus onfocus=alert(4) data-hostile x='`,
	`</script><script data-hostile>hostile=1</script>`,
	`javascript:hostile=1//<b data-hostile>`,
	`<img src=//other.invalid/x data-hostile>`,
	`{{.}}${hostile=1}%s%00&lt;b data-hostile&gt;`,
	"ord-\u202etxt.exe\u2066<b data-hostile>",
	"../../actions?kind=pause#<b data-hostile>",
}

// hostileLetters returns dead letters with hostile texts in each part that a page may show.
func hostileLetters() (letters []letter) {
	control := "\x00\x01\x08\x1b[31mred\x7f\u0085\u009b\r\n\t\xff\xfe"
	for _, text := range hostileTexts {
		letters = append(letters, letter{Order: text, Value: `{"order_id":"` + text, Cause: text, Detail: text, Stage: text, Source: text})
	}
	return append(letters,
		letter{Order: "hostile-control", Value: control + strings.Join(hostileTexts, control), Detail: control},
		letter{Order: control, Value: "{}", Cause: control, Stage: control, Source: control},
		letter{Order: "hostile-long", Value: strings.Repeat("\u202e<b data-hostile>", 64<<10/19), Detail: strings.Repeat("W", 1024)},
		letter{Order: strings.Repeat("<b data-hostile>", 256), Value: strings.Repeat("W", 64<<10), Cause: strings.Repeat("W", 1024)},
	)
}

// plain returns the longest part of a text without characters that change its direction: a page may show those in another way.
func plain(text string) (longest string) {
	for _, part := range strings.FieldsFunc(text, isDirection) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

func isDirection(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// findHarm returns what is wrong with a page that shows hostile texts.
const findHarm = `(() => {
	const found = [];
	if (typeof hostile !== "undefined") found.push("a script of the text has run");
	for (const e of document.querySelectorAll("[data-hostile]")) found.push("an element is injected: " + e.outerHTML);
	for (const e of document.querySelectorAll("*")) {
		for (const a of e.attributes) {
			if (a.name.startsWith("on")) found.push("an attribute is a script: " + e.cloneNode(false).outerHTML);
			if (/^\s*(javascript:|vbscript:|data:text)/i.test(a.value) &&
				["href", "src", "action", "formaction", "xlink:href"].includes(a.name)) found.push("a link is a script: " + e.cloneNode(false).outerHTML);
		}
	}
	const texts = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const text = texts.currentNode, parent = text.parentElement;
		if (["SCRIPT", "STYLE"].includes(parent.tagName)) continue;
		if (/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/.test(text.data)) found.push("control characters are shown as they are: " + parent.cloneNode(false).outerHTML);
		if (!/[\u202a-\u202e\u2066-\u2069]/.test(text.data)) continue;
		// The text must end with its element, and the element must end what the text changes.
		const isolated = /isolate|plaintext/.test(getComputedStyle(parent).unicodeBidi);
		const alone = given.some(g => g.includes(parent.textContent.trim().replace(/…$/, "")));
		if (parent.tagName !== "TITLE" && !(isolated && alone)) found.push("the direction of a text is not isolated: " + parent.outerHTML.slice(0, 300));
	}
	return found;
})()`

// isHarmless checks that the page shows hostile texts as texts.
func (b *tab) isHarmless(where string) {
	b.t.Helper()
	given := slices.Clone(hostileTexts)
	for _, l := range hostileLetters() {
		given = append(given, l.Order, l.Value, l.Detail)
	}
	for _, harm := range append(eval[[]string](b, strings.Replace(findHarm, "given", literal(given), 1)), b.seen()...) {
		b.t.Errorf("%s: %s", where, short(harm))
	}
}

// showsHostileOrders creates orders with hostile ids and categories, searches them, and looks at all pages.
func showsHostileOrders(t testing.TB, w *serve) {
	b := open(t, w, look{})
	for i, text := range hostileTexts {
		w.create(t, text, hostileTexts[(i+1)%len(hostileTexts)])
		b.goTo("/")
		b.isHarmless("Now")
		b.searchOrder(text)
		b.isHarmless("order " + text)
		b.searchOrder(text + "?")
		b.isHarmless("unknown order " + text)
	}
	for _, text := range []string{strings.Repeat(`<b data-hostile>`, 1000), strings.Repeat(`<b data-hostile>`, 4096), "\x1b[31m<b data-hostile>"} {
		b.goTo("/")
		eval[chromedp.Void](b, `document.querySelector("#order-id").removeAttribute("maxlength")`)
		b.leaves("search", func() {
			eval[chromedp.Void](b, `document.querySelector("#order-id").value = `+literal(text))
			b.click("#search button")
		})
		b.isHarmless("an id that is not valid")
		b.fits("an id that is not valid")
	}
	for _, path := range pagesOf {
		b.goTo(path)
		b.isHarmless(path)
	}
}

// showsHostileLetters opens dead letters with hostile keys, values and headers, on a phone.
func showsHostileLetters(t testing.TB, w *serve) {
	b := open(t, w, look{width: phone})
	for _, l := range hostileLetters() {
		at := w.giveUp(t, l)
		where := fmt.Sprintf("dead letter %.40q", l.Order)
		b.openLetter(at)
		b.isHarmless(where)
		b.fits(where)
		key := plain(printable(l.Order))
		expect.That(t, len(key) > 64 || strings.Contains(b.text("main"), key), "%s: the page does not show the key:\n%s", where, short(b.text("main")))
		filter := url.Values{"cause": {l.Cause}, "topic": {l.Source}, "since": {l.Cause}, "after": {l.Cause}}
		b.do("filter", chromedp.Navigate(w.url()+"/dead-letters?"+filter.Encode())) // it may be refused
		b.isHarmless(where + ", as a filter")
	}
	for _, text := range hostileTexts {
		b.goTo("/dead-letters")
		b.isHarmless("the list of dead letters")
		b.fits("the list of dead letters")
		b.searchLetters(text)
		b.isHarmless("the dead letters of " + text)
	}
	b.goTo("/")
	b.isHarmless("Now")
	at := w.giveUp(t, letter{Order: hostileTexts[0], Cause: hostileTexts[1]})
	b.openLetter(at)
	b.isHarmless("a dead letter")
	b.fits("a dead letter")
}

// printable returns text without control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0xfffd {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

// refusesAnotherSite opens a page of another site that shows the console in a frame, and sends forms to it.
func refusesAnotherSite(t testing.TB, w *serve) {
	other := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(rw, `<!doctype html><title>another site</title><link rel="icon" href="data:,"><iframe src="%[1]s/"></iframe>
			<form method="post" action="%[1]s/actions"><input name="kind" value="pause"><button>send</button></form>`, w.url())
	}))
	defer other.Close()
	b := open(t, w, look{})
	b.goTo("/")                                                     // the tab has the console's cookies
	site := strings.Replace(other.URL, "127.0.0.1", "localhost", 1) // another site than the console's
	b.mu.Lock()
	b.hosts = append(b.hosts, strings.TrimPrefix(site, "http://"))
	b.mu.Unlock()
	b.do("open another site", chromedp.Navigate(site))
	expect.That(t, slices.ContainsFunc(b.seen(), func(fault string) bool { return strings.Contains(fault, "frame") }),
		"another site may show the console in a frame")
	b.leaves("send a form", func() { b.click("button") })
	expect.That(t, b.lastStatus()/100 == 4 && !b.has("#action"), "another site may ask for an action: status %d\n%s", b.lastStatus(), b.text("body"))
}
