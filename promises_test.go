package orderclose_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Each promise of docs/reliability.md names tests that exist and run in the ring of their column.
func TestPromises_HaveTests(t *testing.T) {
	bodies := testBodies(t)
	for _, promise := range tableRows(t, "docs/reliability.md", "## Promises") {
		name := boldText.FindString(promise[0])
		must.That(t, name != "" && len(promise) == 4, "a row of docs/reliability.md is %q", promise)
		columns := promise[2:]
		for column, names := range columns {
			for _, test := range testNames.FindAllString(names, -1) {
				switch body, exists := bodies[test]; {
				case !exists:
					t.Errorf("%s: there is no %s", name, test)
				case column == 0 && strings.Contains(body, "\n\tring.NotShort(t)"), strings.Contains(body, "\n\tring.OnlyAll(t"):
					t.Errorf("%s: %s does not run in that ring", name, test)
				}
			}
		}
		expect.That(t, columns[0] != "" && columns[1] != "", "%s has no test in make unit, or none on real servers", name)
	}
}

var (
	boldText  = regexp.MustCompile(`^\*\*[^*]+\*\*`)
	testNames = regexp.MustCompile(`Test\w+`)
)

// tableRows returns the cells of the first table of a section, without its head.
func tableRows(t *testing.T, file, heading string) (rows [][]string) {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	_, section, found := strings.Cut(string(text), heading+"\n")
	must.That(t, found, "%s has no section %s", file, heading)
	for line := range strings.Lines(section) {
		cells, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !isRow && len(rows) > 0 {
			break
		}
		if isRow {
			all := strings.Split(strings.TrimSuffix(cells, "|"), "|")
			for i := range all {
				all[i] = strings.TrimSpace(all[i])
			}
			rows = append(rows, all)
		}
	}
	return rows[2:]
}

// testBodies returns the source of each test of the tree, by its name.
func testBodies(t *testing.T) map[string]string {
	t.Helper()
	all, declared := map[string]string{}, regexp.MustCompile(`(?ms)^func (Test\w+)\(.*?^}`)
	eachWith(t, ".go", func(path string) {
		for _, test := range declared.FindAllStringSubmatch(string(must.Get(os.ReadFile(path))(t)), -1) {
			all[test[1]] = test[0]
		}
	})
	return all
}
