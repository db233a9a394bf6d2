package orderclose_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The packages whose tests use real servers or processes. A busy machine makes those slow, so no time may decide about a
// test. Of the first ones, all files are read; of the others, which are part of the product, the tests only.
// internal/testkit/chaosreal is not among them: it judges by the database's clock.
var (
	timedAll   = []string{"internal/testkit/realtest", "internal/testkit/storetest", "internal/testkit/servers", "internal/testkit/process"}
	timedTests = []string{"internal/store", "webhook", "examples/clients"}
)

// timingAllowed has files that still break the rule, and how often. A number may only fall. The game day waits for alerts, whose rules have durations.
var timingAllowed = map[string]int{
	"examples/clients/clients_test.go":          2,
	"examples/clients/real_test.go":             2,
	"internal/store/latepayments_test.go":       1,
	"internal/testkit/realtest/gameday_test.go": 16,
}

// timingExceptions are functions that may wait.
var timingExceptions = map[string]string{
	"internal/testkit/process/process.go: Await": "the one poll that all waiting helpers use",
	"internal/testkit/storetest/await.go: Await": "the same for tests that may use no process",
}

// shortest is the shortest deadline. A shorter one decides about a test on a busy machine.
const shortest = 30 * time.Second

const (
	useAwait = "wait for a fact: process.Await, and await, eventually or until of realtest; the pace of a load is in package scenario; what is about time " +
		"belongs into a testing/synctest bubble"
	useFact  = "compare facts, such as counts or the due times in the database; log a duration, or measure it in a testing/synctest bubble"
	useLimit = "use one generous limit for all, such as waitLimit of realtest"
)

// A test of real servers waits for facts, never for a time.
func TestTiming_NoTimeDecidesAboutATestOfRealServers(t *testing.T) {
	found := map[string][]string{}
	for i, dir := range append(append([]string{}, timedAll...), timedTests...) {
		consts := durations{}
		var files []timedFile
		must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || i >= len(timedAll) && !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			f, err := readTimed(path, string(text))
			if err == nil && !f.bubble {
				files = append(files, f)
				consts.add(f.ast)
			}
			return err
		}))
		for _, f := range files {
			if lines := f.problems(consts); len(lines) > 0 {
				found[filepath.ToSlash(f.path)] = lines
			}
		}
	}
	for path, lines := range found {
		switch allowed := timingAllowed[path]; {
		case len(lines) > allowed:
			t.Errorf("%s may break the rule %d times:\n%s", path, allowed, strings.Join(lines, "\n"))
		case len(lines) < allowed:
			t.Errorf("%s breaks the rule only %d times now: lower its number in timingAllowed", path, len(lines))
		}
	}
	for path := range timingAllowed {
		expect.That(t, found[path] != nil, "%s breaks the rule no more: remove it from timingAllowed", path)
	}
}

// The rule finds each kind of decision by time, and nothing else.
func TestTiming_TheRuleFindsEachDecisionByTime(t *testing.T) {
	for code, want := range map[string]int{
		"time.Sleep(x)":                           1,
		"<-time.After(x)":                         1,
		"for ; ; <-time.After(x) {}":              1,
		"c := time.After(3 * time.Second); _ = c": 1,
		"select { case <-done: case <-time.After(3 * time.Second): }": 1,
		"select { case <-done: case <-time.After(limit): }":           0,
		"select { case <-done: case <-time.After(brief): }":           1,
		"time.NewTimer(x)":                                           1,
		"time.AfterFunc(x, stop)":                                    1,
		"context.WithTimeout(ctx, 20*time.Second)":                   1,
		"context.WithTimeout(ctx, time.Second)":                      1,
		"context.WithTimeout(ctx, time.Minute)":                      0,
		"context.WithTimeout(ctx, brief)":                            1,
		"context.WithDeadline(ctx, time.Now().Add(5 * time.Second))": 1,
		"if time.Since(began) > x {}":                                1,
		"began := time.Now(); if other.Sub(began) > x {}":            1,
		"if took := time.Since(began); took > x {}":                  1,
		"took := time.Since(began).Abs(); for took < x {}":           1,
		"for end := x; time.Now().Before(end); {}":                   1,
		"if end.Before(time.Now()) {}":                               1,
		"t.Log(time.Since(began))":                                   0,
		"if due.Sub(created) > x {}":                                 0,
		"if due.Before(closed) {}":                                   0,
		"time.Now().Add(-time.Hour)":                                 0,
	} {
		f, err := readTimed("x_test.go", "package x\nconst brief = 2 * time.Second\nfunc f() {\n"+code+"\n}")
		must.That(t, err == nil, "%s: %v", code, err)
		consts := durations{}
		consts.add(f.ast)
		got := f.problems(consts)
		expect.That(t, len(got) == want, "%s: found %q, want %d", code, got, want)
	}
	f, err := readTimed("x_test.go", "package x\nimport \"testing/synctest\"\nfunc f() { time.Sleep(1) }")
	expect.That(t, err == nil && f.bubble, "a file with bubbles is read: %+v, %v", f, err)
}

// timedFile is a file that the rule reads.
type timedFile struct {
	path   string
	ast    *ast.File
	fset   *token.FileSet
	bubble bool // it has bubbles of testing/synctest, whose time is virtual
}

func readTimed(path, text string) (f timedFile, err error) {
	f = timedFile{path: path, fset: token.NewFileSet()}
	f.ast, err = parser.ParseFile(f.fset, path, text, 0)
	if err != nil {
		return f, err
	}
	for _, i := range f.ast.Imports {
		f.bubble = f.bubble || i.Path.Value == `"testing/synctest"`
	}
	return f, nil
}

// problems returns a line for each place that breaks the rule.
func (f timedFile) problems(consts durations) (lines []string) {
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || timingExceptions[filepath.ToSlash(f.path)+": "+fn.Name.Name] != "" {
			continue
		}
		r := timingRule{consts: consts, clocks: map[string]bool{}, elapsed: map[string]bool{}, report: func(n ast.Node, what, instead string) {
			at := f.fset.Position(n.Pos())
			lines = append(lines, fmt.Sprintf("%s:%d: %s: %s", f.path, at.Line, what, instead))
		}}
		ast.Inspect(fn.Body, r.names)
		ast.Inspect(fn.Body, r.visit)
	}
	return lines
}

// durations are constants of a package, by name.
type durations map[string]time.Duration

func (c durations) add(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, v := range spec.Values {
				if d, known := c.value(v); known {
					c[spec.Names[i].Name] = d
				}
			}
		}
		return true
	})
}

var units = map[string]time.Duration{
	"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// value returns the value of a constant duration, or of a number.
func (c durations) value(e ast.Expr) (time.Duration, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.ParseInt(strings.ReplaceAll(e.Value, "_", ""), 10, 64)
		return time.Duration(n), err == nil
	case *ast.Ident:
		d, known := c[e.Name]
		return d, known
	case *ast.ParenExpr:
		return c.value(e.X)
	case *ast.SelectorExpr:
		d, known := units[e.Sel.Name]
		return d, known
	case *ast.BinaryExpr:
		x, known := c.value(e.X)
		y, also := c.value(e.Y)
		if !known || !also {
			return 0, false
		}
		switch e.Op {
		case token.MUL:
			return x * y, true
		case token.ADD:
			return x + y, true
		case token.QUO:
			return x / max(y, 1), true
		}
	}
	return 0, false
}

// timingRule reads one function.
type timingRule struct {
	consts  durations
	clocks  map[string]bool // names of readings of the clock
	elapsed map[string]bool // names of measured times
	limits  map[ast.Node]bool
	report  func(n ast.Node, what, instead string)
}

// names notes the variables that are set to a reading of the clock, or to a measured time.
func (r *timingRule) names(n ast.Node) bool {
	if set, ok := n.(*ast.AssignStmt); ok && len(set.Lhs) == len(set.Rhs) {
		for i, v := range set.Rhs {
			name, ok := set.Lhs[i].(*ast.Ident)
			switch {
			case !ok:
			case isCall(v, "time", "Now"):
				r.clocks[name.Name] = true
			case r.measures(v):
				r.elapsed[name.Name] = true
			}
		}
	}
	return true
}

func (r *timingRule) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CommClause:
		if d, limit := r.after(n.Comm); limit {
			r.note(d)
			if d, known := r.consts.value(d.Args[0]); known && d < shortest {
				r.report(n, fmt.Sprintf("a limit of %v", d), useLimit)
			}
		}
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LSS, token.GTR, token.LEQ, token.GEQ:
			if r.measures(n.X) || r.measures(n.Y) {
				r.report(n, "a measured time is compared", useFact)
			}
		}
	case *ast.CallExpr:
		r.call(n)
	}
	return true
}

// after returns the call of time.After by which a case of a select receives.
func (r *timingRule) after(s ast.Stmt) (*ast.CallExpr, bool) {
	if e, ok := s.(*ast.ExprStmt); ok {
		if receive, ok := e.X.(*ast.UnaryExpr); ok && receive.Op == token.ARROW && isCall(receive.X, "time", "After") {
			return receive.X.(*ast.CallExpr), true
		}
	}
	return nil, false
}

func (r *timingRule) note(n ast.Node) {
	if r.limits == nil {
		r.limits = map[ast.Node]bool{}
	}
	r.limits[n] = true
}

func (r *timingRule) call(c *ast.CallExpr) {
	fn, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	switch name := fn.Sel.Name; {
	case isCall(c, "time", "After") && r.limits[c]:
	case isCall(c, "time", "Sleep"), isCall(c, "retry", "Sleep"), isCall(c, "time", "After"), isCall(c, "time", "NewTimer"), isCall(c, "time", "NewTicker"),
		isCall(c, "time", "Tick"), isCall(c, "time", "AfterFunc"):
		r.report(c, fn.X.(*ast.Ident).Name+"."+name, useAwait)
	case (name == "WithTimeout" || name == "WithDeadline" || name == "WithTimeoutCause") && len(c.Args) > 1:
		limit := c.Args[1]
		if add, ok := limit.(*ast.CallExpr); ok && len(add.Args) == 1 { // time.Now().Add(d)
			limit = add.Args[0]
		}
		if d, known := r.consts.value(limit); known && d < shortest {
			r.report(c, fmt.Sprintf("a limit of %v", d), useLimit)
		}
	case (name == "Before" || name == "After") && len(c.Args) == 1 && (isCall(fn.X, "time", "Now") || isCall(c.Args[0], "time", "Now")):
		r.report(c, "the clock is compared", useAwait)
	}
}

// measures reports whether an expression is a time that was measured by the clock of the test.
func (r *timingRule) measures(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return r.elapsed[e.Name]
	case *ast.CallExpr:
		if isCall(e, "time", "Since") || isCall(e, "time", "Until") {
			return true
		}
		fn, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if fn.Sel.Name == "Sub" && len(e.Args) == 1 {
			return r.reads(fn.X) || r.reads(e.Args[0])
		}
		return r.measures(fn.X) // such as Abs
	}
	return false
}

// reads reports whether an expression is a reading of the clock.
func (r *timingRule) reads(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && r.clocks[name.Name] || isCall(e, "time", "Now")
}

// isCall reports whether an expression calls a function of a package.
func isCall(e ast.Expr, pkg, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	fn, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || fn.Sel.Name != name {
		return false
	}
	x, ok := fn.X.(*ast.Ident)
	return ok && x.Name == pkg
}
