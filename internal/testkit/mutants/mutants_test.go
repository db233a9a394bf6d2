// Package mutants tests the tests. It breaks the code on purpose, in a copy that only the compiler sees, and requires that a test fails.
//
//	make mutants                             all mutants; the table at the end says which test caught each
//	make mutants ARGS='-run Mutants/commit'  some of them
//	make mutants MUTANTS_IN='closer outbox'  those whose code or test is in these folders
//	make mutants MUTANTS_EIGHTH=3            an eighth of them: 0 to 7; with MUTANTS_IN, these too
//
// Each mutant is a mistake that a review could overlook. A line that a mutant changes ends
// with a marker, a comment with the slug of the mutant. The other files list the mutants, one file for each area.
//
// All mutants are compiled at once: a changed function holds its own body and one body for each
// mutant. A variable of the environment says which of them a test program plays.
package mutants

import (
	"bytes"
	"context"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// killTime limits the test that has to fail. It allows for a busy machine: on an idle one the slowest test takes 5 s.
const killTime = 5 * time.Minute

// mutant is a mistake in the code, and the test that has to fail because of it.
type mutant struct {
	slug, name string // slug is in the markers; name says what the mistake is
	changes
	pkg, test string // test is its full name, with its subtests
	says      string // part of the output of the failing test, so that it fails for the right reason
}

// changes are pairs of old and new code. An old piece must occur exactly once in the marked lines.
// An empty old piece stands for the whole of the only marked line. A marked line without a change is removed.
type changes [][2]string

// all returns the mutants of all areas.
func all() []mutant {
	return slices.Concat(relayMutants, partitionMutants, closerMutants, kafkaMutants, storeMutants,
		outboxMutants, compensatorMutants, operationMutants, paymentsMutants, webhookMutants)
}

// Each mutant that the environment selects must be caught.
func TestMutants_AreCaught(t *testing.T) {
	wanted := selection(t)
	tree := readTree(t)
	var caught table
	var played []mutant
	programs := map[string]string{}
	for _, m := range all() {
		if !wanted(m, tree.folders(m)) {
			continue
		}
		t.Run(m.slug, func(t *testing.T) {
			played = append(played, m)
			t.Parallel() // it waits until the programs are built
			if program := programs[m.pkg]; program != "" {
				caught.add(m, m.mustDie(t, tree.root, program))
			}
		})
	}
	if len(played) == 0 {
		return
	}
	t.Cleanup(func() { caught.print(os.Stdout, tree.onlyAll) })
	began := time.Now()
	tree.build(t, played, programs)
	caught.built = time.Since(began)
}

// selection returns whether the environment selects a mutant, of which it gets the folders of its code and of its test.
func selection(t *testing.T) func(m mutant, folders []string) bool {
	t.Helper()
	in, eighth := strings.Fields(os.Getenv("MUTANTS_IN")), os.Getenv("MUTANTS_EIGHTH")
	n, err := strconv.Atoi(eighth)
	must.That(t, eighth == "" || err == nil && n >= 0 && n <= 7, "MUTANTS_EIGHTH is %q, want 0 to 7", eighth)
	return func(m mutant, folders []string) bool {
		hash := fnv.New32a()
		hash.Write([]byte(m.slug))
		return os.Getenv("MUTANTS") == "1" || eighth == strconv.Itoa(int(hash.Sum32()%8)) || slices.ContainsFunc(in, func(dir string) bool {
			dir = filepath.Clean(dir)
			return slices.ContainsFunc(folders, func(f string) bool { return f == dir || strings.HasPrefix(f, dir+"/") })
		})
	}
}

// mustDie plays the mutant in the test program, and requires that its test fails in time and for the right reason.
func (m mutant) mustDie(t *testing.T, root, program string) verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), killTime)
	defer cancel()
	var pattern []string
	for part := range strings.SplitSeq(m.test, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	test := exec.CommandContext(ctx, program, append(flags(t, program), "-test.run", strings.Join(pattern, "/"), "-test.failfast")...)
	test.Dir = filepath.Join(root, m.pkg)
	test.Env = append(os.Environ(), "RING=all", played+"="+m.slug)
	var out bytes.Buffer
	test.Stdout, test.Stderr = &out, &out
	began := time.Now()
	err := test.Run()
	v := verdict{test: failed(out.String()), after: time.Since(began), says: lineOf(out.String(), m.says)}
	switch {
	case ctx.Err() != nil:
		t.Errorf("%s did not end within %v", m.test, killTime)
		v.test = "none: it did not end in time"
	case err == nil:
		t.Errorf("no test failed: %s passes, is skipped, or does not exist", m.test)
		v.test = "none: it passes"
	case v.test == "" || v.says == "":
		t.Errorf("it failed for another reason than %q:\n%s", m.says, out.String()[:min(out.Len(), 4000)])
	}
	return v
}

// flags returns flags for the test program. If it contains rapid, rapid must not write files beside the tests, nor search long for the shortest failure.
func flags(t *testing.T, program string) []string {
	t.Helper()
	data := must.Get(os.ReadFile(program))(t)
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
