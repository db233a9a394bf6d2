package mutants

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// Each marker belongs to one mutant, and each mutant to markers that its changes fit.
func TestMarkers_BelongToOneMutant(t *testing.T) {
	tree := readTree(t)
	slugs, names := map[string]bool{}, map[string]bool{}
	form := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+){1,3}$`)
	for _, m := range all() {
		expect.That(t, !slugs[m.slug] && !names[m.name] && form.MatchString(m.slug),
			"the slug %q or the name %q occurs twice, or the slug is not two to four words", m.slug, m.name)
		slugs[m.slug], names[m.name] = true, true
		fits := make([]int, len(m.changes))
		marked := 0
		for _, s := range tree.sources {
			s.mutate(m, fits)
			marked += len(s.marks[m.slug])
		}
		expect.That(t, marked != 0, "no line is marked with //mutant:%s", m.slug)
		for i, n := range fits {
			if n != 1 {
				t.Errorf("%s: its marked lines contain %d times: %s", m.slug, n, m.changes[i][0])
			}
		}
	}
	for _, s := range tree.sources {
		for slug, lines := range s.marks {
			if !slugs[slug] {
				t.Errorf("%s/%s:%d: no mutant is %s", s.folder, s.name, lines[0]+1, slug)
			}
		}
	}
	_, err := tree.overlay(all())
	expect.That(t, err == nil, "%v", err)
}

// Each mutant names a test that exists, and a part of its output.
func TestMutants_NameTheirTests(t *testing.T) {
	tree := readTree(t)
	for _, m := range all() {
		expect.That(t, tree.test(m) != nil && m.says != "", "%s: %s has no test %s, or the mutant does not say what the test prints", m.slug, m.pkg, m.test)
	}
}

// Most mistakes are found before a merge: make test finds at least two thirds.
func TestMutants_MakeTestCatchesTwoThirds(t *testing.T) {
	tree := readTree(t)
	var late []string
	for _, m := range all() {
		if tree.onlyAll(m) {
			late = append(late, m.slug)
		}
	}
	t.Logf("only make test-all catches %d of %d mutants: %s", len(late), len(all()), strings.Join(late, " "))
	if 3*len(late) > len(all()) {
		t.Errorf("only make test-all catches %d of %d mutants, want at most a third: %s", len(late), len(all()), strings.Join(late, " "))
	}
}

// onlyAll reports whether only make test-all plays the test of a mutant: it calls ring.OnlyAll, or is in a module of its own.
func (t tree) onlyAll(m mutant) (only bool) {
	if t.module(m.pkg) != "." {
		return true
	}
	ast.Inspect(t.test(m), func(n ast.Node) bool {
		if call, is := n.(*ast.SelectorExpr); is && call.Sel.Name == "OnlyAll" {
			of, is := call.X.(*ast.Ident)
			only = only || is && of.Name == "ring"
		}
		return true
	})
	return only
}

// test returns the function of a mutant's test, or nil.
func (t tree) test(m mutant) *ast.FuncDecl {
	name, _, _ := strings.Cut(m.test, "/")
	files, _ := filepath.Glob(filepath.Join(t.root, m.pkg, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("func "+name+"(")) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler says why
		}
		for _, d := range parsed.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Name.Name == name {
				return f
			}
		}
	}
	return nil
}
