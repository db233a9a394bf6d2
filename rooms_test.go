package orderclose_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// join compares a file with what it should have. UPDATE_GOLDEN=1 writes it.
func join(t *testing.T, path string, with func(have string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must.That(t, err == nil || os.IsNotExist(err), "%v", err)
	have, want := string(text), with(string(text))
	if have != want && os.Getenv("UPDATE_GOLDEN") == "1" {
		must.Do(t, os.WriteFile(path, []byte(want), 0o600))
		return
	}
	expect.That(t, have == want, "%s does not have what the program and the rooms have: UPDATE_GOLDEN=1 go test -run '^%s$' . writes it", path, t.Name())
}

// What the folders of rooms have is in the files of all: UPDATE_GOLDEN=1 go test -run RoomsAreJoined . writes it, and removes what is left of
// rooms that are gone.
func TestDocuments_RoomsAreJoined(t *testing.T) {
	ofRooms := func(pattern string) []string { return must.Get(filepath.Glob("rooms/*/" + pattern))(t) }
	read := func(name string) string { return string(must.Get(os.ReadFile(name))(t)) }
	const from = "# A copy of "
	const rules, tests = "deploy/helm/orderclose/alerts/", "deploy/alerts/"
	for pattern, folder := range map[string]string{"*.rules.yml": rules, "*.test.yml": tests} {
		for _, name := range ofRooms(pattern) {
			join(t, folder+filepath.Base(name), func(string) string { return from + name + ".\n" + read(name) })
		}
	}
	for _, name := range append(must.Get(filepath.Glob(rules+"*.yml"))(t), must.Get(filepath.Glob(tests+"*.yml"))(t)...) {
		line, _, _ := strings.Cut(read(name), ".\n")
		source, copied := strings.CutPrefix(line, from)
		if _, err := os.Stat(source); !copied || err == nil {
			continue
		}
		if os.Getenv("UPDATE_GOLDEN") == "1" {
			must.Do(t, os.Remove(name))
			continue
		}
		t.Errorf("%s is a copy of %s, which is gone", name, source)
	}
	// between replaces what a file has between two pieces of text; "" is its end.
	between := func(path, begin, end, text string) {
		join(t, path, func(page string) string {
			before, rest, begins := strings.Cut(page, begin)
			at := len(rest)
			if end != "" {
				at = strings.Index(rest, end)
			}
			must.That(t, begins && at >= 0, "%s has no place for what rooms have", path)
			return before + begin + text + rest[at:]
		})
	}
	keys, sections, rows := "\n", "", ""
	for _, name := range ofRooms("topics.yaml") {
		keys += read(name) + "\n"
	}
	between("topics.yaml", "# ---- Of rooms: topics.yaml in the folder of each -----------------------------\n", "# ---- Refusals", keys)
	links := strings.NewReplacer("](../../docs/runbook.md#", "](#", "](../../docs/", "](")
	for _, name := range ofRooms("runbook.md") {
		sections += "\n" + links.Replace(read(name))
	}
	between("docs/runbook.md", lastOfCore, "", sections)
	for line := range strings.Lines(must.Get(goList("-f", "{{.Name}} {{.Doc}}", "./rooms/..."))(t)) {
		if name, what, is := strings.Cut(line, " Package "); is && name != "rooms" {
			rows += "| " + strings.TrimRight(strings.TrimPrefix(what, name+" "), ".\n") + " | `rooms/" + name + "` |\n"
		}
	}
	between("docs/architecture.md", "| **Rooms** | |\n", "| what a room has and gets |", rows)
}

// lastOfCore is the end of the sections of the runbook that are not those of rooms.
const lastOfCore = "Raise `partitions`, then `topics apply`. Running relays and closers notice within 5 s.\n"
