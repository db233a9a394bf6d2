package orderclose_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The runbook, the folder of alerts and topics.yaml have what the folders of rooms have: UPDATE_GOLDEN=1 go test -run RoomsAreJoined . writes it.
func TestDocuments_RoomsAreJoined(t *testing.T) {
	join := func(path string, with func(have string) string) {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		have, want := string(text), with(string(text))
		if have != want && os.Getenv("UPDATE_GOLDEN") == "1" {
			must.Do(t, os.WriteFile(path, []byte(want), 0o600))
			return
		}
		expect.That(t, have == want, "%s does not have what a room has: UPDATE_GOLDEN=1 go test -run RoomsAreJoined . writes it", path)
	}
	for _, name := range append(must.Get(filepath.Glob("rooms/*/*.rules.yml"))(t), must.Get(filepath.Glob("rooms/*/*.test.yml"))(t)...) {
		join(filepath.Join("deploy/alerts", filepath.Base(name)), func(string) string { return string(must.Get(os.ReadFile(name))(t)) })
	}
	join("topics.yaml", func(page string) string {
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
		join("docs/runbook.md", func(page string) string {
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
