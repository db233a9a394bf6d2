// Package mutants tests the tests. It breaks the code on purpose, in a copy that only
// the compiler sees, and requires that a test fails.
//
//	make mutants                  all mutants; the table at the end says which test caught each
//	make mutants ARGS='-run Mutants/commit'
//
// Each mutant is a mistake that a review could overlook. The other files list the
// mutants, one file for each area.
package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// killTime limits the test that has to fail, without its build. It allows for a
// busy machine: on an idle one the slowest test takes 20 s, beside other programs 90 s.
const killTime = 5 * time.Minute

// edit replaces a piece of code in a file. The piece must occur exactly once in the
// file.
type edit struct{ file, old, new string }

// mutant is a mistake in the code, and the test that has to fail because of it.
type mutant struct {
	name     string
	edits    []edit
	pkg, run string
	says     string // part of the output of the failing test, so that it fails for the right reason
}

// all returns the mutants of all areas.
func all() []mutant {
	return slices.Concat(relayMutants, partitionMutants, closerMutants, kafkaMutants, storeMutants,
		outboxMutants, compensatorMutants, operationMutants, paymentsMutants)
}

// Each mutant must fit the current code. With MUTANTS=1 each must also be caught.
func TestMutants_AreCaught(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var caught table
	for _, m := range all() {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.apply(t, root)
			if !m.hasTest(t, root) {
				t.Fatalf("no test of %s matches %s: name the test that catches this mutant", m.pkg, m.run)
			}
			if os.Getenv("MUTANTS") != "1" {
				return
			}
			t.Parallel() // as many in parallel as there are cores
			caught.add(m, m.mustDie(t, root, overlay))
		})
	}
	t.Cleanup(func() { caught.print(os.Stdout) })
}

// Each name in the table must be unique.
func TestMutants_HaveUniqueNames(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range all() {
		if seen[m.name] || m.says == "" || m.run == "" {
			t.Errorf("%q occurs twice, or does not say which test catches it and what that test prints", m.name)
		}
		seen[m.name] = true
	}
}

// apply writes the mutated files, and the overlay file that names them to the
// compiler.
func (m mutant) apply(t *testing.T, root string) (overlay string) {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	changed := map[string]string{}
	for _, e := range m.edits {
		path := filepath.Join(root, e.file)
		text, ok := changed[path]
		if !ok {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if n := strings.Count(text, e.old); n != 1 {
			t.Fatalf("%s has %d times the code that this mutant replaces: change the mutant so that it fits the present code\n%s", e.file, n, e.old)
		}
		changed[path] = strings.Replace(text, e.old, e.new, 1)
	}
	for path, text := range changed {
		to := filepath.Join(dir, strings.ReplaceAll(filepath.Base(path), ".go", ".mutant"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = to
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// testName matches the declaration of a test.
var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// hasTest reports whether a test matches run: a mutant whose test was renamed is not
// caught.
func (m mutant) hasTest(t *testing.T, root string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(m.run, "/") // without the subtest
	wanted := regexp.MustCompile(test)
	return slices.ContainsFunc(files, func(file string) bool {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(testName.FindAllSubmatch(data, -1), func(name [][]byte) bool { return wanted.Match(name[1]) })
	})
}

// mustDie builds the test program with the mutant, runs it, and requires that a test
// fails in time and for the right reason.
func (m mutant) mustDie(t *testing.T, root, overlay string) verdict {
	t.Helper()
	program := filepath.Join(t.TempDir(), "mutant.test")
	// Linking without debug information takes half the time.
	build := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", program, ".")
	build.Dir = filepath.Join(root, m.pkg) // which may be of another module
	began := time.Now()
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("it does not compile, which catches nothing: %v\n%s", err, out)
		return verdict{test: "none: does not compile"}
	}
	built := time.Since(began)
	ctx, cancel := context.WithTimeout(t.Context(), killTime)
	defer cancel()
	test := exec.CommandContext(ctx, program, append(flags(t, program), "-test.run", m.run, "-test.failfast")...)
	test.Dir = filepath.Join(root, m.pkg)
	var out bytes.Buffer
	test.Stdout, test.Stderr = &out, &out
	began = time.Now()
	err := test.Run()
	v := verdict{test: failed(out.String()), after: time.Since(began), built: built, says: lineOf(out.String(), m.says)}
	switch {
	case ctx.Err() != nil:
		t.Errorf("%s did not end within %v", m.run, killTime)
		v.test = "none: it did not end in time"
	case err == nil:
		t.Errorf("no test failed: %s passes", m.run)
		v.test = "none: it passes"
	case v.test == "" || v.says == "":
		t.Errorf("it failed for another reason than %q:\n%s", m.says, out.String()[:min(out.Len(), 4000)])
	}
	return v
}

// flags returns flags for the test program. If it contains rapid, rapid must not
// write files beside the tests, nor search long for the shortest failure.
func flags(t *testing.T, program string) []string {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte("rapid.nofailfile")) {
		return nil
	}
	return []string{"-rapid.nofailfile", "-rapid.shrinktime=2s"}
}

// failure matches the line of a failed test.
var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failed returns the name of the first failed test, including its subtest.
func failed(output string) (name string) {
	for _, match := range failure.FindAllStringSubmatch(output, -1) {
		if strings.HasPrefix(match[1], name) {
			name = match[1]
		}
	}
	return name
}

// lineOf returns the first line of the output that contains text, shortened.
func lineOf(output, text string) string {
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); strings.Contains(line, text) {
			return line[:min(len(line), 160)]
		}
	}
	return ""
}
