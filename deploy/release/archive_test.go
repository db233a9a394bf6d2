package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/rooms"
)

// unpacked returns the files of a tar archive, by name. The archive must be free of everything that depends on the machine.
func unpacked(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	var modified *tar.Header
	for archive := tar.NewReader(from); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return files
		}
		must.Do(t, err)
		if modified == nil {
			modified = h
		}
		expect.That(t, h.Uid+h.Gid == 0 && h.Uname+h.Gname == "" && h.ModTime.Equal(modified.ModTime),
			"%s: owner %d:%d %s:%s, time %v; want root without a name, and the time of the commit", h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime)
		if want := h.Typeflag == tar.TypeDir || strings.HasPrefix(filepath.Base(h.Name), "orderclose") && filepath.Ext(h.Name) == "" ||
			filepath.Ext(h.Name) == ".sh"; h.Mode != 0o644 && !want || h.Mode != 0o755 && want {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		files[h.Name] = must.Get(io.ReadAll(archive))(t)
	}
}

// archive returns the files in the archive of a target.
func archive(t *testing.T, x target) map[string][]byte {
	t.Helper()
	name := "orderclose_" + tag + "_" + x.os + "_" + x.arch
	compressed, err := gzip.NewReader(bytes.NewReader(released(t)[name+".tar.gz"]))
	must.That(t, err == nil, "%s.tar.gz: %v", name, err)
	files := map[string][]byte{}
	for full, data := range unpacked(t, compressed) {
		inner, ok := strings.CutPrefix(full, name+"/")
		expect.That(t, ok, "%s.tar.gz: %s is outside of the folder", name, full)
		files[inner] = data
	}
	return files
}

// requireVersion runs the binary, if this machine can, and requires that it names tag and revision.
func requireVersion(t *testing.T, x target, binary []byte) {
	t.Helper()
	if x.os != runtime.GOOS || x.arch != runtime.GOARCH {
		return
	}
	path := filepath.Join(t.TempDir(), "orderclose")
	must.Do(t, os.WriteFile(path, binary, 0o755))
	out := must.Get(exec.Command(path, "version", "-o", "json").Output())(t)
	var got struct{ Version, Revision string }
	err := json.Unmarshal(out, &got)
	must.That(t, err == nil, "%v\n%s", err, out)
	if got.Version != tag || got.Revision != revision(t) {
		t.Errorf("%s/%s: the version is %+v, want %s %s", x.os, x.arch, got, tag, revision(t))
	}
}

func TestArchive_HasTheBinaryAndItsDocuments(t *testing.T) {
	folders := must.Get(run(".", nil, "go", "env", "GOROOT", "GOMODCACHE"))(t)
	for _, x := range chosenTargets() {
		files := archive(t, x)
		for _, name := range []string{
			"LICENSE", "NOTICE", "README.md", "CHANGELOG.md",
			"topics.yaml", "topics.schema.json", "THIRD-PARTY-LICENSES", "docs/runbook.md", "deploy/helm/orderclose/alerts/pipeline.rules.yml",
			"completions/orderclose.bash", "completions/orderclose.fish", "completions/_orderclose",
			"deploy/helm/orderclose/Chart.yaml", "deploy/helm/orderclose/templates/_helpers.tpl",
			"SECURITY.md", "deploy/compose/compose.yaml", "deploy/compose/secrets.sh", "deploy/systemd/orderclose@.service",
			"deploy/helm/orderclose/README.md", "deploy/helm/orderclose/dashboards/overview.json",
			"deploy/grafana/provisioning/dashboards/orderclose.yaml",
		} {
			expect.That(t, len(files[name]) != 0, "%v: %s is missing", x, name)
		}
		for name := range files {
			expect.That(t, !strings.HasSuffix(name, ".test.yml") && !strings.HasSuffix(name, ".go"), "%v: %s is in the archive", x, name)
		}
		binary := files["orderclose"]
		requireVersion(t, x, binary)
		for _, path := range append(strings.Fields(string(folders)), "orderclose-release") {
			expect.That(t, !bytes.Contains(binary, []byte(path)), "%v: the binary contains the path %s", x, path)
		}
		for _, m := range linked(t, files) {
			expect.That(t, bytes.Contains(files["THIRD-PARTY-LICENSES"], []byte("==== "+m.Path+" "+m.Version+": ")), "%v: there is no license of %s", x, m.Path)
		}
	}
}

// linked returns the modules of others that the binaries of an archive link.
func linked(t *testing.T, files map[string][]byte) (all []*debug.Module) {
	t.Helper()
	for _, b := range built {
		info := must.Get(buildinfo.Read(bytes.NewReader(files[b.name])))(t)
		for _, m := range info.Deps {
			if m.Path != "github.com/orderclose/orderclose" {
				all = append(all, m)
			}
		}
	}
	return all
}

// A link of a document leads to a file of the archive, or to the commit in the repository.
func TestArchive_LinksOfItsDocumentsLeadSomewhere(t *testing.T) {
	files := archive(t, chosenTargets()[0])
	folders := map[string]bool{}
	for name := range files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	source := must.Get(commit())(t)
	repository, checked := "https://github.com/orderclose/orderclose/blob/"+revision(t)+"/", 0
	for name, text := range files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllSubmatch(text, -1) {
			link, _, _ := strings.Cut(string(m[1]), "#")
			checked++
			if inSource, ok := strings.CutPrefix(link, repository); ok {
				_, err := os.Stat(filepath.Join(source, inSource))
				expect.That(t, err == nil, "%s links to %s: %v", name, link, err)
				continue
			}
			if target := path.Join(path.Dir(name), link); link != "" && !strings.Contains(link, "://") && files[target] == nil && !folders[target] {
				t.Errorf("%s links to %s, which is not in the archive", name, link)
			}
		}
	}
	expect.That(t, checked >= 100, "only %d links", checked)
}

// The image of a release has its version as tag.
func TestArchive_ChartAsksForTheImageBesideIt(t *testing.T) {
	files := archive(t, chosenTargets()[0])
	chart, page := string(files["deploy/helm/orderclose/Chart.yaml"]), string(files["docs/kubernetes.md"])
	expect.That(t, strings.Contains(chart, "\nappVersion: "+tag+"\n"), "the chart is\n%s", chart)
	expect.That(t, strings.Contains(page, "image: {repository: registry.example/orderclose, tag: "+tag+"}"), "docs/kubernetes.md names another tag than %s", tag)
}

func TestArchive_HasAManPageForEachCommand(t *testing.T) {
	files := archive(t, chosenTargets()[0])
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		name := "man/man1/" + strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page := string(files[name])
		expect.That(t, strings.Contains(page, c.Name()) && strings.Contains(page, tag), "%s: %q", name, page)
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				visit(sub)
			}
		}
	}
	visit(cli.Root(rooms.All()))
}
