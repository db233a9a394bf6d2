package orderclose_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestLimits_NamesEachConstantAsTheCodeHasIt compares the constants of the tables of docs/limits.md
// with the code: each stands in the file that the same line names after it, with the same value.
func TestLimits_NamesEachConstantAsTheCodeHasIt(t *testing.T) {
	page := must.Get(os.ReadFile("docs/limits.md"))(t)
	quoted, constant := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`^[\w., ]+ = |^\w+: time\.`)
	found := 0
	for line := range strings.Lines(string(page)) {
		var constants []string // that wait for their file
		for _, q := range quoted.FindAllStringSubmatch(line, -1) {
			switch text := q[1]; {
			case constant.MatchString(text):
				constants = append(constants, text)
			case strings.HasSuffix(text, ".go"):
				code := codeOf(t, text)
				for _, c := range constants {
					if found++; !regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(c) + `($|[^\w.])`).MatchString(code) {
						t.Errorf("docs/limits.md says that %s has %q, which is not there: write what the code has", text, c)
					}
				}
				constants = nil
			}
		}
		expect.That(t, len(constants) <= 0, "docs/limits.md names no file of %q", constants)
	}
	expect.That(t, found >= 90, "the tables of docs/limits.md have %d constants; did a heading change?", found)
}

// codeOf returns a file with one space in place of each run of white space.
func codeOf(t *testing.T, file string) string {
	code, err := os.ReadFile(file)
	expect.That(t, err == nil, "docs/limits.md names a file that cannot be read: %v", err)
	return strings.Join(strings.Fields(string(code)), " ")
}
