package orderclose_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/rooms"
)

// join compares a file with what it should have. UPDATE_GOLDEN=1 writes it.
func join(t *testing.T, path string, with func(have string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	have, want := string(text), with(string(text))
	if have != want && os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(path, []byte(want), 0o600))
		return
	}
	expect.That(t, have == want, "%s does not have what the program and the rooms have: UPDATE_GOLDEN=1 go test -run '^%s$' . writes it", path, t.Name())
}

// The table of commands has one row for each usage of a command. UPDATE_GOLDEN=1 go test -run CommandsAreThoseOfTheProgram . writes the
// usages, adds rows with the short help, and removes rows of commands that are gone. The texts of rows are written by hand.
func TestDocuments_CommandsAreThoseOfTheProgram(t *testing.T) {
	type usage struct{ path, row, short string }
	var left []usage
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "orderclose ")
		for _, below := range c.Commands() {
			add(below)
		}
		if c.Hidden || c.HasSubCommands() {
			return
		}
		for i, arguments := range strings.Split(c.Use, " | "+c.Name()) {
			if i == 0 {
				arguments = strings.TrimPrefix(arguments, c.Name())
			}
			left = append(left, usage{path, "| `" + strings.ReplaceAll(path+arguments, "|", `\|`) + "`", " | " + c.Short + " |\n"})
		}
	}
	add(cli.Root(rooms.All()))
	join(t, "docs/production.md", func(page string) string {
		const heading = "| command | |\n| --- | --- |\n"
		before, after, _ := strings.Cut(page, heading)
		table, rest, found := strings.Cut(after, "\n\n")
		must.That(t, found, "docs/production.md has no table of commands")
		page = before + heading
		for row := range strings.Lines(table + "\n") {
			_, row, _ = strings.Cut(row, "`")
			had, text, _ := strings.Cut(row, "`")
			i := slices.IndexFunc(left, func(u usage) bool { return strings.HasPrefix(had+" ", u.path+" ") })
			if i >= 0 {
				page += left[i].row + text
				left = slices.Delete(left, i, i+1)
			}
		}
		for _, u := range left {
			page += u.row + u.short
		}
		return page + "\n" + rest
	})
}

// The runbook, the folder of alerts and topics.yaml have what the folders of rooms have: UPDATE_GOLDEN=1 go test -run RoomsAreJoined . writes it.
func TestDocuments_RoomsAreJoined(t *testing.T) {
	for _, name := range append(must.Get(filepath.Glob("rooms/*/*.rules.yml"))(t), must.Get(filepath.Glob("rooms/*/*.test.yml"))(t)...) {
		join(t, filepath.Join("deploy/alerts", filepath.Base(name)), func(string) string { return string(must.Get(os.ReadFile(name))(t)) })
	}
	join(t, "topics.yaml", func(page string) string {
		const heading, next = "# ---- Of rooms", "# ---- Refusals"
		before, rest, _ := strings.Cut(page, heading)
		line, rest, _ := strings.Cut(rest, "\n")
		_, after, found := strings.Cut(rest, next)
		must.That(t, found, "topics.yaml has no place for the keys of rooms")
		text := before + heading + line + "\n\n"
		for _, name := range must.Get(filepath.Glob("rooms/*/topics.yaml"))(t) {
			text += string(must.Get(os.ReadFile(name))(t)) + "\n"
		}
		return text + next + after
	})
	for _, name := range must.Get(filepath.Glob("rooms/*/runbook.md"))(t) {
		section := string(must.Get(os.ReadFile(name))(t))
		title, _, _ := strings.Cut(section, "\n")
		join(t, "docs/runbook.md", func(page string) string {
			before, after, found := strings.Cut(page, "\n"+title+"\n")
			if !found {
				return page + "\n" + section
			}
			_, rest, more := strings.Cut(after, "\n## ")
			if more {
				rest = "\n## " + rest
			}
			return before + "\n" + section + rest
		})
	}
}
