package mutants

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// played is the variable of the environment, and of each changed package, with the slug of the mutant that is played.
const played = "MUTANT_PLAYED"

// marker matches the end of a marked line.
var marker = regexp.MustCompile(`\s*//mutant:([a-z0-9,-]+)$`)

// source is a file with markers.
type source struct {
	folder, name string           // folder is below the root
	lines        []string         // without markers
	marks        map[string][]int // indexes of lines, by slug
}

// tree is all code with markers.
type tree struct {
	root    string
	sources []*source
}

// readTree reads the product's code, not its tests.
func readTree(t *testing.T) tree {
	t.Helper()
	root := must.Get(filepath.Abs("../../.."))(t)
	all := tree{root: root}
	must.Do(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "testdata"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), "//mutant:") {
			folder, _ := filepath.Rel(root, filepath.Dir(file))
			all.sources = append(all.sources, parseMarkers(filepath.ToSlash(folder), d.Name(), string(text)))
		}
		return err
	}))
	return all
}

func parseMarkers(folder, name, text string) *source {
	s := &source{folder: folder, name: name, lines: strings.Split(text, "\n"), marks: map[string][]int{}}
	for i, line := range s.lines {
		if found := marker.FindStringSubmatch(line); found != nil {
			s.lines[i] = strings.TrimSuffix(line, found[0])
			for slug := range strings.SplitSeq(found[1], ",") {
				s.marks[slug] = append(s.marks[slug], i)
			}
		}
	}
	return s
}

// folders returns the folders of the mutant's code and of its test.
func (t tree) folders(m mutant) []string {
	folders := []string{m.pkg}
	for _, s := range t.sources {
		if len(s.marks[m.slug]) > 0 {
			folders = append(folders, s.folder)
		}
	}
	return folders
}

// mutate returns the file with the mistake. It has as many lines as before. fits counts in how many places each change fits.
func (s *source) mutate(m mutant, fits []int) string {
	lines := slices.Clone(s.lines)
	for _, i := range s.marks[m.slug] {
		line, fit := lines[i], false
		for k, c := range m.changes {
			old := c[0]
			if old == "" {
				old = line
			}
			n := strings.Count(line, old)
			fits[k] += n
			line, fit = strings.Replace(line, old, c[1], 1), fit || n > 0
		}
		if !fit {
			line = ""
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// withMutants returns the file with all of its mutants. A function with a mutant becomes
//
//	func f() { if MUTANT_PLAYED == "slug" { the mutated body; return }; the body }
//
// An error of the compiler about the mutated body names the slug instead of the file.
func (s *source) withMutants(mutants []mutant) (string, error) {
	text := strings.Join(s.lines, "\n")
	original, err := parse(s.name, text)
	if err != nil {
		return "", err
	}
	bodies := make([]string, len(original.decls)) // of mutants, by declaration
	for _, m := range mutants {
		mutated, err := parse(m.slug, s.mutate(m, make([]int, len(m.changes))))
		if err != nil {
			return "", err
		}
		for i, d := range original.decls {
			switch now := mutated.decls[i]; {
			case d.text == now.text:
			case d.head != now.head:
				return "", fmt.Errorf("%s: %s changes code outside of a function", s.name, m.slug)
			default:
				bodies[i] += fmt.Sprintf("\nif %s == %q {\n//line %s:%d\n%s%s\n}", played, m.slug, m.slug, d.line, now.body, d.end)
			}
		}
	}
	for i, d := range slices.Backward(original.decls) {
		if bodies[i] != "" {
			text = text[:d.offset] + bodies[i] + fmt.Sprintf("\n//line %s:%d\n", s.name, d.line) + text[d.offset:]
		}
	}
	return text, nil
}

// parsed is a file, as its declarations.
type parsed struct {
	file  *ast.File
	decls []declaration
}

type declaration struct {
	text, head, body string // only a function has a body, which begins behind its brace; head is the text before
	offset, line     int    // where the body begins
	end              string // ends a mutated body: a function with results returns in it
}

func parse(name, text string) (p parsed, err error) {
	files := token.NewFileSet()
	p.file, err = parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return parsed{}, err
	}
	for _, d := range p.file.Decls {
		from, to := files.Position(d.Pos()).Offset, files.Position(d.End()).Offset
		one := declaration{text: text[from:to], head: text[from:to]}
		if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
			brace := files.Position(f.Body.Lbrace)
			one.offset, one.line = brace.Offset+1, brace.Line
			one.head, one.body = text[from:one.offset], text[one.offset:to-1]
			if f.Type.Results == nil {
				one.end = "\nreturn"
			}
		}
		p.decls = append(p.decls, one)
	}
	return p, nil
}

// overlay returns the code with all mutants, by path: the changed files, and a file with the variable for each package.
func (t tree) overlay(mutants []mutant) (map[string]string, error) {
	files := map[string]string{}
	for _, s := range t.sources {
		text, err := s.withMutants(slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return len(s.marks[m.slug]) == 0 }))
		if err != nil {
			return nil, err
		}
		files[filepath.Join(t.root, s.folder, s.name)] = text
		pkg := regexp.MustCompile(`(?m)^package \w+`).FindString(text)
		files[filepath.Join(t.root, s.folder, "mutant_played.go")] = fmt.Sprintf("%s\n\nimport \"os\"\n\nvar %s = os.Getenv(%[2]q)\n", pkg, played)
	}
	return files, nil
}

// build builds the test programs of the mutants, with all mutants in each of them, so that each package is compiled once.
func (t tree) build(test *testing.T, mutants []mutant, programs map[string]string) {
	test.Helper()
	dir, replace := test.TempDir(), map[string]string{}
	files := must.Get(t.overlay(all()))(test)
	for file, text := range files {
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		must.Do(test, os.WriteFile(replace[file], []byte(text), 0o600))
	}
	list := must.Get(json.Marshal(map[string]any{"Replace": replace}))(test)
	overlay := filepath.Join(dir, "overlay.json")
	must.Do(test, os.WriteFile(overlay, list, 0o600))
	for b, pkgs := range t.batches(mutants) {
		out := filepath.Join(dir, strconv.Itoa(b.number), b.module)
		must.Do(test, os.MkdirAll(out, 0o700))
		// Linking without debug information takes half the time.
		build := exec.Command("go", append([]string{"test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", out + "/"}, pkgs...)...)
		build.Dir = filepath.Join(t.root, b.module)
		if text, err := build.CombinedOutput(); err != nil {
			test.Errorf("a mutant does not compile, which catches nothing: %v\n%s", err, text)
			continue
		}
		for _, pkg := range pkgs {
			name := path.Base(pkg)
			if name == "." {
				name = path.Base(t.modulePath(b.module))
			}
			programs[path.Join(b.module, pkg)] = filepath.Join(out, name+".test")
		}
	}
}

// batch is a command that builds test programs: they are of one module, and the last elements of their paths differ.
type batch struct {
	module string
	number int
}

// batches returns the packages of the mutants, below their modules.
func (t tree) batches(mutants []mutant) map[batch][]string {
	batches := map[batch][]string{}
	for _, m := range mutants {
		b := batch{module: t.module(m.pkg)}
		pkg, _ := filepath.Rel(b.module, m.pkg)
		pkg = "./" + pkg
		for !slices.Contains(batches[b], pkg) {
			if !slices.ContainsFunc(batches[b], func(other string) bool { return path.Base(other) == path.Base(pkg) }) {
				batches[b] = append(batches[b], pkg)
				break
			}
			b.number++
		}
	}
	return batches
}

// module returns the folder of the module of a package.
func (t tree) module(pkg string) string {
	for ; pkg != "."; pkg = path.Dir(pkg) {
		if _, err := os.Stat(filepath.Join(t.root, pkg, "go.mod")); err == nil {
			break
		}
	}
	return pkg
}

// modulePath returns the import path of a module.
func (t tree) modulePath(module string) string {
	text, _ := os.ReadFile(filepath.Join(t.root, module, "go.mod"))
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "module ")
}
