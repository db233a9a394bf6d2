package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// Each folder with code is in the table, and each folder and part of the table exists.
func TestFolders_AreComplete(t *testing.T) {
	t.Chdir("../../..")
	out, err := git("ls-files")
	if err != nil {
		t.Skip(err) // an archive without git
	}
	files := strings.Split(out, "\n")
	for _, file := range files {
		of := folderOf(file)
		expect.That(t, of.path != "" || !strings.Contains(file, "/"), "no folder of parts.go has %s", file)
	}
	for _, f := range folders {
		expect.That(t, slices.ContainsFunc(files, func(file string) bool { return strings.HasPrefix(file, f.path) }), "there is no %s", f.path)
		for _, name := range f.parts {
			expect.That(t, slices.ContainsFunc(parts, func(p part) bool { return p.name == name }),
				"%s names the part %s, which does not exist", f.path, name)
		}
	}
}

// Each module but the console's is a part, and belongs to a folder that plays it.
func TestParts_HaveEachModule(t *testing.T) {
	text := must.Get(os.ReadFile("../../../Makefile"))(t)
	for _, dir := range strings.Fields(string(regexp.MustCompile(`(?m)^MODULES := (.*)$`).FindSubmatch(text)[1])) {
		if dir == "deploy/consoletest" {
			continue // the part console
		}
		_, err := os.Stat(filepath.Join("../../..", dir, "go.mod"))
		expect.That(t, err == nil, "%v", err)
		expect.That(t, slices.Contains(folderOf(path.Join(dir, "go.mod")).parts, dir), "a change of %s does not play its tests", dir)
	}
}

func TestPartsOf_AChange(t *testing.T) {
	names, in := partsOf([]string{"internal/console/page.go", "internal/console/texts.yaml", "payments/stripe/stripe.go", "closer/decide.go", "README.md"})
	want := []string{"console", "payments"}
	expect.That(t, slices.Equal(names, want), "parts %v, want %v", names, want)
	if want := []string{"closer", "internal/console", "payments/stripe"}; !slices.Equal(in, want) {
		t.Errorf("folders %v, want %v", in, want)
	}
}

func TestRecord_IsReadBack(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(t, os.Mkdir("docs", 0o700))
	before := "# Reliability\n\n" + recordBegin + "commit `abc`\n" + recordEnd + "\nMore.\n"
	must.Do(t, os.WriteFile(recordFile, []byte(before), 0o600))
	r := record{"0123456789ab", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 30 * time.Minute, []step{{"lint", 61 * time.Second}}}
	must.Do(t, r.write())
	after := must.Get(os.ReadFile(recordFile))(t)
	if !strings.Contains(string(after), "2026-01-02, 30.0 minutes") || !strings.Contains(string(after), "\nlint 61.\n") ||
		!strings.HasSuffix(string(after), "More.\n") {
		t.Errorf("%s", after)
	}
	commit, err := lastCommit()
	expect.That(t, err == nil && commit == r.commit, "commit %q, %v", commit, err)
}
