package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const tag = "v1.2.3"

// everything is set by make release-check: all targets are built, and for the second release everything is compiled again.
var everything = os.Getenv("RELEASE_EVERYTHING") == "1"

// folder holds the clones and the releases of all tests.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "orderclose-release-test"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// chosenTargets returns the targets that the tests build: the machine that runs them, and always one with Linux, because only Linux has an image.
func chosenTargets() []target {
	host := target{runtime.GOOS, runtime.GOARCH}
	switch {
	case everything:
		return targets
	case host.os == "linux":
		return []target{host}
	}
	return []target{host, {"linux", host.arch}}
}

// commit copies the files of this repository, with all changes, to a repository of its own, and commits and tags them. It returns the folder.
var commit = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(folder, "first")
	list, err := run("../..", nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := copyFile(filepath.Join("../..", name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--template="}, {"add", "--all"}, {"commit", "--quiet", "--message=all"}, {"tag", tag},
	} {
		if _, err := run(dir, author, "git", args...); err != nil {
			return "", err
		}
	}
	return dir, nil
})

// author lets git commit without the configuration of the person who runs the tests.
var author = []string{
	"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
	"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com",
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode())
}

// firstRelease makes the release that most tests read.
var firstRelease = sync.OnceValues(func() (dir string, err error) {
	source, err := commit()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(folder, "release")
	return dir, makeRelease(source, dir, chosenTargets())
})

// released returns the files of the release, by name.
func released(t *testing.T) map[string][]byte {
	t.Helper()
	dir := must.Get(firstRelease())(t)
	return readAll(t, dir)
}

func readAll(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	files := map[string][]byte{}
	for _, e := range entries {
		files[e.Name()] = must.Get(os.ReadFile(filepath.Join(dir, e.Name())))(t)
	}
	return files
}

// revision returns the commit from which the release was made.
func revision(t *testing.T) string {
	t.Helper()
	dir := must.Get(commit())(t)
	out := must.Get(run(dir, nil, "git", "rev-parse", "HEAD"))(t)
	return strings.TrimSpace(string(out))
}

// The second build is from a linked worktree in another folder. With RELEASE_EVERYTHING nothing compiled is reused either.
func TestRelease_TwoBuildsOfACommitGiveTheSameBytes(t *testing.T) {
	one := released(t)
	source, out := filepath.Join(t.TempDir(), "another folder"), t.TempDir()
	first := must.Get(commit())(t)
	must.Get(run(first, nil, "git", "worktree", "add", "--quiet", "--detach", source))(t)
	if everything {
		t.Setenv("GOCACHE", t.TempDir())
	}
	t.Setenv("TZ", "Asia/Tokyo")
	must.Do(t, makeRelease(source, out, chosenTargets()))
	two := readAll(t, out)
	want := len(chosenTargets()) + 3
	for _, x := range chosenTargets() {
		if x.os == "linux" {
			want += len(packageKinds)
		}
	}
	expect.That(t, len(one) == want && len(two) == want, "%d and %d files, want %d", len(one), len(two), want)
	for name, data := range one {
		expect.That(t, bytes.Equal(data, two[name]), "%s differs: %d and %d bytes", name, len(data), len(two[name]))
	}
}

func TestRelease_ChecksumsAreThoseOfAllOtherFiles(t *testing.T) {
	files := released(t)
	dir, _ := firstRelease()
	if _, err := exec.LookPath("sha256sum"); err == nil {
		expect.NoError(t, expect.Err(run(dir, nil, "sha256sum", "--check", "--strict", "SHA256SUMS")))
	}
	for name := range files {
		expect.That(t, name == "SHA256SUMS" || bytes.Contains(files["SHA256SUMS"], []byte("  "+name+"\n")), "SHA256SUMS does not name %s", name)
	}
}

func TestRelease_RefusesUncommittedChanges(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	first := must.Get(commit())(t)
	must.Get(run(first, nil, "git", "clone", "--quiet", ".", source))(t)
	must.Do(t, os.WriteFile(filepath.Join(source, "new.go"), []byte("package orderclose\n"), 0o644))
	err := makeRelease(source, t.TempDir(), targets)
	expect.That(t, err != nil && strings.Contains(err.Error(), "commit or stash them:\n?? new.go"), "got %v", err)
}

func TestRelease_RefusesAFolderThatIsNotEmpty(t *testing.T) {
	out := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(out, "old.tar.gz"), nil, 0o644))
	err := makeRelease("../..", out, targets)
	expect.That(t, err != nil && strings.Contains(err.Error(), "is not empty"), "got %v", err)
}
