package orderclose_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestDesign_NamesEachConstantAsTheCodeHasIt compares the constants of some tables of docs/design.md
// with the code: each stands in the file that the same line names after it, with the same value.
func TestDesign_NamesEachConstantAsTheCodeHasIt(t *testing.T) {
	page := must.Get(os.ReadFile("docs/design.md"))(t)
	_, tables, _ := strings.Cut(string(page), "\n### What stops a partition from being read on\n")
	tables, _, _ = strings.Cut(tables, "\n## ")
	quoted, constant := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`^[\w., ]+ = |^\w+: time\.`)
	found := 0
	for line := range strings.Lines(tables) {
		var constants []string // that wait for their file
		for _, q := range quoted.FindAllStringSubmatch(line, -1) {
			switch text := q[1]; {
			case constant.MatchString(text):
				constants = append(constants, text)
			case strings.HasSuffix(text, ".go"):
				code := codeOf(t, text)
				for _, c := range constants {
					if found++; !regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(c) + `($|[^\w.])`).MatchString(code) {
						t.Errorf("docs/design.md: %s does not have %q", text, c)
					}
				}
				constants = nil
			}
		}
		if len(constants) > 0 {
			t.Errorf("docs/design.md names no file of %q", constants)
		}
	}
	if found < 90 {
		t.Errorf("the tables of docs/design.md have %d constants; did a heading change?", found)
	}
}

// codeOf returns a file with one space in place of each run of white space.
func codeOf(t *testing.T, file string) string {
	code, err := os.ReadFile(file)
	if err != nil {
		t.Error("docs/design.md names a file that cannot be read:", err)
	}
	return strings.Join(strings.Fields(string(code)), " ")
}
