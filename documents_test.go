package orderclose_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/runbook"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/rights"
)

// documents returns the text of each Markdown file, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	eachWith(t, ".md", func(path string) { texts[path] = string(must.Get(os.ReadFile(path))(t)) })
	return texts
}

// anchors returns the anchors of the headings of a document.
func anchors(text string) (all []string) {
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if title, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && line[0] == '#' && !code {
			all = append(all, runbook.Anchor(strings.TrimSpace(title)))
		}
	}
	return all
}

// A link of a document leads to a file or a folder, and to a heading of it.
func TestDocuments_LinksLeadSomewhere(t *testing.T) {
	texts, checked := documents(t), 0
	for path, text := range texts {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			file, anchor, hasAnchor := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			checked++
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
			} else if hasAnchor && !slices.Contains(anchors(texts[target]), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", path, m[1])
			}
		}
	}
	expect.That(t, checked > 700, "only %d links; does the test still find them?", checked)
}

// docs/architecture.md names each package, or a folder above it. What it names exists.
func TestDocuments_ArchitectureNamesWhatThereIs(t *testing.T) {
	page := must.Get(os.ReadFile("docs/architecture.md"))(t)
	named := map[string]bool{".": true}
	for _, m := range regexp.MustCompile("`([\\w./-]+)`").FindAllStringSubmatch(string(page), -1) {
		named[m[1]] = true
		if _, err := os.Stat(m[1]); err != nil && strings.Contains(m[1], "/") {
			t.Errorf("docs/architecture.md names %s, which does not exist: correct or delete its line", m[1])
		}
	}
	for pkg := range packages(t) {
		folder := pkg
		for !named[folder] && folder != "." {
			folder = filepath.Dir(folder)
		}
		expect.That(t, folder != "." || pkg == ".", "To change X, open Y of docs/architecture.md has no row for package %s, or a folder above it", pkg)
	}
}

// docs/production.md names each command.
func TestDocuments_CommandsAreThoseOfTheProgram(t *testing.T) {
	page := string(must.Get(os.ReadFile("docs/production.md"))(t))
	var named func(c *cobra.Command)
	named = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			named(below)
		}
		path := "`" + strings.TrimPrefix(c.CommandPath(), "orderclose ") + "`"
		expect.That(t, c.Hidden || c.HasSubCommands() || strings.Contains(page, path), "docs/production.md does not name %s", path)
	}
	named(cli.Root())
}

// The tables of ACLs and privileges are those of package rights. UPDATE_GOLDEN=1 writes them.
func TestDocuments_TablesOfAccessAreGenerated(t *testing.T) {
	all := must.Get(rights.Read("."))(t)
	condition := regexp.MustCompile("^(only|not) [A-Z][A-Za-z]+( and PostgreSQL)?")
	// table has a row for each part. The right of a row is its last field before why, and the field before it is the name.
	table := func(rows [][]string, right int) (text string) {
		for i, row := range rows {
			name := "`" + row[right-1] + "` "
			if row[1] == "Group" {
				name = "group " + name
			}
			switch {
			case i > 0 && slices.Equal(row[:right], rows[i-1][:right]):
				text += ", "
			case i > 0 && row[0] == rows[i-1][0]:
				text += "; " + name
			default:
				text += strings.Repeat(" |\n", min(i, 1)) + "| " + row[0] + " | " + name
			}
			if text += row[right]; condition.MatchString(rights.Why(row, right+1)) {
				text += " (" + condition.FindString(rights.Why(row, right+1)) + ")"
			}
		}
		return text + " |\n"
	}
	// What docs/mapping.md gives one user for all parts.
	own := map[string]string{"orders": "SELECT, UPDATE", "order_items": "SELECT, UPDATE", "stock": "SELECT, UPDATE"}
	for _, g := range all.Grants() {
		for _, p := range g.Privileges {
			expect.That(t, strings.Contains(cmp.Or(own[g.Table], "SELECT, INSERT, UPDATE, DELETE"), p), "docs/mapping.md gives no %s on %s", p, g.Table)
		}
	}
	for _, c := range []struct{ file, heading, rows string }{
		{"docs/security.md", "| part | ACLs |\n| --- | --- |\n", table(all.Kafka, 3)},
		{"docs/security.md", "| part | privileges |\n| --- | --- |\n", table(all.Database, 2)},
	} {
		page := string(must.Get(os.ReadFile(c.file))(t))
		before, after, _ := strings.Cut(page, c.heading)
		now, rest, found := strings.Cut(after, "\n\n")
		must.That(t, found, "%s has no table %s", c.file, c.heading)
		if now += "\n"; now != c.rows && os.Getenv("UPDATE_GOLDEN") == "1" {
			must.Do(t, os.WriteFile(c.file, []byte(before+c.heading+c.rows+"\n"+rest), 0o600))
			continue
		}
		expect.Equal(t, now, c.rows, "the table in %s, which UPDATE_GOLDEN=1 go test -run TablesOfAccess . writes", c.file)
	}
}
