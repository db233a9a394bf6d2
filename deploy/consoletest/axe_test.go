package consoletest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

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
	Nodes            []struct {
		HTML, FailureSummary string
	}
}

// runAxe runs all rules, and returns the violations that keep people from using the page.
const runAxe = `axe.run(document, {resultTypes: ["violations"]}).then(found => JSON.stringify(
	found.violations.filter(v => v.impact === "serious" || v.impact === "critical")))`

// accessible checks the page by the rules of axe-core. They run in a world of their own, which the
// page's content security policy does not bind, and which leaves nothing in the page.
func (b *tab) accessible(where string) {
	b.t.Helper()
	script, err := axeScript()
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, b.limit)
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
	if err != nil {
		b.t.Fatalf("%s: axe-core: %v", where, err)
	}
	var found []violation
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range found {
		for _, n := range v.Nodes {
			b.t.Errorf("%s: %s (%s): %s\n  %s\n  %s", where, v.ID, v.Impact, v.Help, short(n.HTML), n.FailureSummary)
		}
	}
}
