package consoletest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// stepTimeout bounds each step of a check. A check on a busy machine takes longer than usual, and no assertion is about time.
const stepTimeout = time.Minute

// missing skips a test because of a missing program, or fails it if REQUIRE_REAL is 1.
func missing(t testing.TB, what, name string) {
	t.Helper()
	must.That(t, os.Getenv("REQUIRE_REAL") != "1", "no %s: run deploy/native/install.sh %s", what, name)
	t.Skipf("no %s: deploy/native/install.sh %s installs it", what, name)
}

// chromium is the browser of all tests. Each tab has a profile of its own.
var chromium struct {
	sync.Mutex
	ctx       context.Context
	userAgent string
	err       error
}

// startChromium starts the browser, or returns the one that runs. Without a browser or axe-core it skips the test.
func startChromium(t testing.TB) (ctx context.Context, userAgent string) {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		missing(t, "chromium", "chromium")
	}
	if _, err := axeScript(); err != nil {
		missing(t, "axe-core", "axe")
	}
	c := &chromium
	c.Lock()
	defer c.Unlock()
	if c.ctx == nil && c.err == nil {
		// No host but the loopback has an address, so nothing depends on the internet.
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
			chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"))
		allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
		c.ctx, _ = chromedp.NewContext(allocator)
		if c.err = chromedp.Do(c.ctx); c.err == nil {
			var version browser.GetVersionResult
			version, c.err = chromedp.CallBrowser(c.ctx, browser.GetVersion, cdp.Empty{})
			c.userAgent = version.UserAgent
		}
	}
	must.That(t, c.err == nil, "%s does not start: %v", path, c.err)
	return c.ctx, c.userAgent
}

// stopChromium ends the browser, if it was started.
func stopChromium() error {
	if chromium.ctx == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(chromium.ctx, stepTimeout)
	defer cancel()
	return chromedp.Cancel(ctx)
}

// look is how a reader looks at a page. The zero value is English, light and 1200 pixels wide.
type look struct {
	lang      string // of the browser: en or zh-CN
	dark      bool   // the system's theme
	still     bool   // the reader prefers reduced motion
	width     int64  // of the screen in pixels; phone is one that is held in a hand
	noScripts bool
}

// phone is the width of a phone in pixels.
const phone = 375

// name describes the reader, as a part of an order's id.
func (l look) name() string {
	return fmt.Sprintf("%s-%d-dark-%t-still-%t", cmp.Or(l.lang, "en"), l.width, l.dark, l.still)
}

// A tab is one tab of the browser. Its methods fail the test if they fail. At the end of the test it
// reports everything that no page of the console may do.
type tab struct {
	t     testing.TB
	ctx   context.Context
	base  string // of the console, without a slash at the end
	width int64  // of the screen, in pixels

	mu        sync.Mutex
	faults    []string     // what no page of the console may do
	errors    []*log.Entry // what the browser itself reports
	hosts     []string     // which pages may request
	requests  []string     // the URLs of all requests
	documents []string     // the URLs of all answers that are documents
	status    int64        // of the last document
}

// open opens a tab that shows no page yet. It sends the password of the operator.
func open(t testing.TB, w *serve, l look) *tab {
	t.Helper()
	b := openSignedOut(t, w, l)
	b.authorize("operator", passwords["operator"])
	return b
}

// authorize makes the tab send user and password with every request, as a browser does after its dialog.
func (b *tab) authorize(name, password string) {
	b.t.Helper()
	header := "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
	b.do("sign in", command(network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Authorization": header}}))
}

// openSignedOut opens a tab that shows no page yet, and sends no password.
func openSignedOut(t testing.TB, w *serve, l look) *tab {
	t.Helper()
	at := must.Get(url.Parse(w.url()))(t)
	parent, userAgent := startChromium(t)
	b := &tab{t: t, base: w.url(), hosts: []string{at.Host}}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.handle))
	b.ctx = ctx
	t.Cleanup(cancel)
	height := int64(900)
	if b.width = cmp.Or(l.width, 1200); b.width == phone {
		height = 812
	}
	scheme, motion := "light", "no-preference"
	if l.dark {
		scheme = "dark"
	}
	if l.still {
		motion = "reduce"
	}
	must.Do(t, chromedp.Do(ctx)) // the tab lives as long as the context of this call
	b.do("emulate a reader",
		command(security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: at.Scheme == "https"}),
		command(emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: userAgent, AcceptLanguage: cmp.Or(l.lang, "en")}),
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: b.width, Height: height, DeviceScaleFactor: 1,
			Mobile: b.width == phone}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion},
		}}),
		command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.noScripts}),
		command(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}), // tabs of other tests are open too
	)
	t.Cleanup(func() {
		for _, fault := range b.seen() {
			t.Errorf("%s: %s", l.name(), fault)
		}
		if t.Failed() {
			b.keep()
		}
	})
	return b
}

// command makes an action of a command without a result.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

// handle records what a page does. It is called for each event of the tab, and must not block.
func (b *tab) handle(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fault := func(format string, args ...any) { b.faults = append(b.faults, fmt.Sprintf(format, args...)) }
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		text := ev.ExceptionDetails.Text
		if ev.ExceptionDetails.Exception != nil {
			text += " " + ev.ExceptionDetails.Exception.Description
		}
		fault("script error: %s", text)
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError || ev.Type == runtime.ConsoleAPICalledTypeAssert {
			text, _ := json.Marshal(ev.Args)
			fault("the page writes to the console: %s", text)
		}
	case *log.EventEntryAdded:
		if ev.Entry.Level == log.EntryLevelError {
			b.errors = append(b.errors, ev.Entry)
		}
	case *page.EventJavascriptDialogOpening:
		fault("a dialog opens: %s", ev.Message)
		go func() { // the page waits for an answer
			_ = chromedp.Do(b.ctx, command(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: false}))
		}()
	case *inspector.EventTargetCrashed:
		fault("the tab has crashed")
	case *network.EventRequestWillBeSent:
		to, err := url.Parse(ev.Request.URL)
		if err != nil || slices.Contains([]string{"http", "https", "ws", "wss", "ftp"}, to.Scheme) && !slices.Contains(b.hosts, to.Host) {
			fault("a request to another host: %.200s", ev.Request.URL)
		}
		b.requests = append(b.requests, ev.Request.URL)
	case *network.EventWebSocketCreated:
		if to, err := url.Parse(ev.URL); err != nil || !slices.Contains(b.hosts, to.Host) {
			fault("a request to another host: %.200s", ev.URL)
		}
	case *network.EventResponseReceived:
		if ev.Type == network.ResourceTypeDocument {
			b.status = ev.Response.Status
			b.documents = append(b.documents, ev.Response.URL)
		}
	}
}

// seen returns and forgets what was recorded.
func (b *tab) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	faults := b.faults
	for _, e := range b.errors {
		// A document with an error status is a page too: checks look at its status. The browser asks for the icon of an answer that is not HTML. All
		// else, such as a violation of the content security policy, is a fault.
		if e.Source != log.EntrySourceNetwork || !slices.Contains(b.documents, e.URL) && !strings.HasSuffix(e.URL, "/favicon.ico") {
			faults = append(faults, fmt.Sprintf("the browser reports (%s): %s %s", e.Source, e.Text, e.URL))
		}
	}
	b.faults, b.errors = nil, nil
	return faults
}

// requested returns the URLs of all requests so far.
func (b *tab) requested() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

// lastStatus returns the HTTP status of the last document.
func (b *tab) lastStatus() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	err := chromedp.Do(ctx, actions...)
	for err != nil && strings.Contains(err.Error(), "Could not find node with given id") && ctx.Err() == nil {
		err = chromedp.Do(ctx, actions...) // an update of the page has replaced the element, before anything was done with it
	}
	must.That(b.t, err == nil, "%s: %v", what, err)
}

// goTo opens a page of the console by its path.
func (b *tab) goTo(path string) {
	b.t.Helper()
	b.do("open "+path, chromedp.Navigate(b.base+path))
	must.That(b.t, b.lastStatus() < 400, "open %s: status %d\n%s", path, b.lastStatus(), b.text("body"))
}

// openLetter opens the page of a dead letter, once the console has read it.
func (b *tab) openLetter(at string) {
	b.t.Helper()
	for end := time.Now().Add(stepTimeout); ; time.Sleep(200 * time.Millisecond) {
		b.do("open dead letter "+at, chromedp.Navigate(b.base+"/dead-letters/"+at))
		switch status := b.lastStatus(); {
		case status < 400:
			return
		case status != http.StatusNotFound || time.Now().After(end):
			b.t.Fatalf("open dead letter %s: status %d\n%s", at, status, b.text("body"))
		}
	}
}

// eval returns the value of a JavaScript expression. It works without scripts too.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := tryEval[T](b, expression)
	must.That(b.t, err == nil, "%s: %v", short(expression), err)
	return value
}

func tryEval[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// short returns the beginning of a text, for messages.
func short(text string) string {
	if runes := []rune(text); len(runes) > 300 {
		return string(runes[:300]) + "…"
	}
	return text
}

// literal returns a value as a literal of JavaScript, and of JSON.
func literal(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// wait waits until a JavaScript expression is true, also on a later page.
func (b *tab) wait(what, expression string) {
	b.t.Helper()
	b.await(what, expression, func() {})
}

// waitReloading waits until a JavaScript expression is true, and reloads the page in between.
func (b *tab) waitReloading(what, expression string) {
	b.t.Helper()
	b.await(what, expression, func() {
		time.Sleep(200 * time.Millisecond)
		b.do("reload", chromedp.Reload())
	})
}

func (b *tab) await(what, expression string, between func()) {
	b.t.Helper()
	for end := time.Now().Add(stepTimeout); ; between() {
		is, err := tryEval[bool](b, expression)
		if is {
			return
		}
		must.That(b.t, time.Now().Before(end) && b.ctx.Err() == nil,
			"%s: not so after %v: %s is false (%v)\n%s", what, stepTimeout, short(expression), err, short(b.text("body")))
		time.Sleep(50 * time.Millisecond)
	}
}

// text returns the visible text of the first element that a CSS selector matches, or an empty string.
func (b *tab) text(selector string) string {
	b.t.Helper()
	text, _ := tryEval[string](b, `document.querySelector(`+literal(selector)+`)?.innerText ?? ""`)
	return text
}

// has says whether an element matches a CSS selector.
func (b *tab) has(selector string) bool {
	b.t.Helper()
	return eval[bool](b, `document.querySelector(`+literal(selector)+`) !== null`)
}

// click clicks with the mouse on the first element that a CSS selector matches.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.do("click "+selector, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// fill types a text into an empty field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.do("type into "+selector, chromedp.Focus(chromedp.CSS(selector), chromedp.NodeVisible), command(input.InsertText, input.InsertTextParams{Text: text}))
}

// press presses a key, such as kb.Tab.
func (b *tab) press(key string) {
	b.t.Helper()
	b.do("press a key", chromedp.KeyEvent(key))
}

// leaves does what opens another page, such as a click, and waits until that page is complete.
func (b *tab) leaves(what string, do func()) {
	b.t.Helper()
	eval[chromedp.Void](b, `window.isOld = true`)
	do()
	b.wait(what, `window.isOld !== true && document.readyState === "complete"`)
}

// searchOrder searches an order with the form that each page has.
func (b *tab) searchOrder(id string) {
	b.t.Helper()
	b.leaves("search an order", func() {
		b.fill("#search #order-id", id)
		b.press(kb.Enter)
	})
	text := eval[string](b, `document.querySelector('main[data-page="order"]')?.textContent ?? ""`)
	must.That(b.t, strings.Contains(text, plain(id)), "the search for order %q opens a page that does not show it (status %d):\n%s", short(id),
		b.lastStatus(), short(b.text("body")))
	for _, requested := range b.requested() {
		expect.That(b.t, !strings.Contains(requested, url.QueryEscape(id)) && !strings.Contains(requested, url.PathEscape(id)),
			"the order id is in the URL %s", requested)
	}
}

// ask clicks on the button that asks for an action of this kind.
func (b *tab) ask(kind string) {
	b.t.Helper()
	button := `(() => {
		const field = document.querySelector('[name=kind][value="` + kind + `"]');
		return !field || field.matches("button, [type=submit]") ? field : field.form.querySelector("button:not([type=button]), [type=submit]");
	})()`
	b.leaves("ask for a "+kind, func() { b.do("ask for a "+kind, chromedp.Click(chromedp.JSPath(button), chromedp.NodeVisible)) })
}

// confirm confirms the action on the page, and waits until it is done.
func (b *tab) confirm() {
	b.t.Helper()
	b.leaves("confirm", func() {
		eval[bool](b, `document.querySelector("#confirm button:not([type=button]), #confirm [type=submit]").click() === undefined`)
	})
	b.waitFor("done")
}

// waitFor waits until the action on the page is in a state.
func (b *tab) waitFor(state string) {
	b.t.Helper()
	b.wait("the action is "+state, `document.querySelector("section#action")?.dataset.state === "`+state+`"`)
}

// screenshot returns a screenshot of the upper 1000 pixels of the page, as a small PNG.
func (b *tab) screenshot() []byte {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	beyond := true
	clip := &page.Viewport{Width: 1200, Height: min(1000, eval[float64](b, `document.documentElement.scrollHeight`)), Scale: 1}
	taken := must.Get(chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Clip: clip, CaptureBeyondViewport: &beyond}))(b.t)
	decoded := must.Get(png.Decode(bytes.NewReader(taken.Data)))(b.t)
	var small bytes.Buffer
	must.Do(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, decoded))
	return small.Bytes()
}

// keep keeps a screenshot of the page and its source, for the one who reads why the test failed (go test -artifacts).
func (b *tab) keep() {
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	dir := b.t.ArtifactDir()
	if picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100)); err == nil {
		_ = os.WriteFile(filepath.Join(dir, "page.png"), picture, 0o600)
	}
	if source, err := tryEval[string](b, `document.documentElement.outerHTML`); err == nil {
		_ = os.WriteFile(filepath.Join(dir, "page.html"), []byte(source), 0o600)
	}
}
