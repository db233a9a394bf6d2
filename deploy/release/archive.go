package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/rooms"
)

// archived are the files of the repository that an archive contains, at the same paths, as patterns
// of git ls-files. A pattern may match nothing.
var archived = []string{
	"LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "topics.yaml", "topics.schema.json", "docs",
	"deploy/alerts", "deploy/helm", "deploy/compose", "deploy/systemd",
	"deploy/grafana/README.md", "deploy/grafana/provisioning",
}

// archiveName returns the name of an archive without .tar.gz, which is also the folder in it.
func (r *release) archiveName(t target) string {
	return fmt.Sprintf("orderclose_%s_%s_%s", r.version, t.os, t.arch)
}

// writeArchive writes the archive of a program, as a compressed tar file.
func (r *release) writeArchive(w io.Writer, p program, documents []file) error {
	folder := r.archiveName(p.target) + "/"
	var files []file
	for _, b := range p.binaries {
		files = append(files, file{name: folder + b.name, data: b.data, executable: true})
	}
	for _, f := range documents {
		f.name = folder + f.name
		files = append(files, f)
	}
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(compressed, files, r.time); err != nil {
		return err
	}
	return compressed.Close()
}

// documents returns what an archive contains for every target: files of the repository,
// completions of shells, and man pages.
func (r *release) documents() ([]file, error) {
	files, err := r.tracked(archived...)
	if err != nil {
		return nil, err
	}
	if err := r.askForOwnImage(files); err != nil {
		return nil, err
	}
	r.linkToSource(files)
	root := cli.Root(rooms.All())
	root.InitDefaultCompletionCmd()
	completions, err := completions(root)
	if err != nil {
		return nil, err
	}
	pages, err := r.manPages(root)
	return append(append(files, completions...), pages...), err
}

// tracked returns the files of the repository that match the patterns, without code and the tests of alerts. It
// follows links to folders: the chart has a link to the alerts, and works without it.
func (r *release) tracked(patterns ...string) ([]file, error) {
	list, err := run(r.source, nil, "git", append([]string{"ls-files", "-z", "--"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var files []file
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if strings.HasSuffix(name, ".test.yml") || strings.HasSuffix(name, ".go") {
			continue
		}
		if folder, err := os.Readlink(filepath.Join(r.source, name)); err == nil {
			folder = path.Join(path.Dir(name), folder)
			linked, err := r.tracked(folder)
			if err != nil {
				return nil, err
			}
			for _, f := range linked {
				f.name = name + strings.TrimPrefix(f.name, folder)
				files = append(files, f)
			}
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.source, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: name, data: data, executable: strings.HasSuffix(name, ".sh")})
	}
	return files, nil
}

var appVersion = regexp.MustCompile(`(?m)^appVersion: (\S+)$`)

// askForOwnImage makes the chart, and the page about it, ask for the
// image of this release. In the repository they name the version that is released next.
func (r *release) askForOwnImage(files []file) error {
	chart, err := os.ReadFile(filepath.Join(r.source, "deploy/helm/orderclose/Chart.yaml"))
	if err != nil {
		return err
	}
	next := appVersion.FindSubmatch(chart)
	if next == nil {
		return errors.New("Chart.yaml has no appVersion")
	}
	for i, f := range files {
		if strings.HasPrefix(f.name, "deploy/helm/") || f.name == "docs/kubernetes.md" {
			files[i].data = bytes.ReplaceAll(f.data, next[1], []byte(r.version))
		}
	}
	return nil
}

// markdownLink matches the target of a link without its fragment.
var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)`)

// linkToSource makes links of the documents to files that the archive does not have, such as source
// code, lead to the commit in the repository.
func (r *release) linkToSource(files []file) {
	has := map[string]bool{}
	for _, f := range files {
		for name := f.name; name != "."; name = path.Dir(name) {
			has[name] = true
		}
	}
	for i, f := range files {
		if path.Ext(f.name) != ".md" {
			continue
		}
		files[i].data = markdownLink.ReplaceAllFunc(f.data, func(link []byte) []byte {
			target := path.Join(path.Dir(f.name), string(link[2:]))
			if _, err := os.Stat(filepath.Join(r.source, target)); err != nil || has[target] {
				return link // also a URL: it is no file
			}
			return []byte("](https://" + r.programs[0].orderclose().Main.Path + "/blob/" + r.revision + "/" + target)
		})
	}
}

// completions returns a script for each shell, under the name by which the shell finds it.
func completions(root *cobra.Command) ([]file, error) {
	var files []file
	for name, write := range map[string]func(io.Writer) error{
		"orderclose.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"orderclose.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"_orderclose":     root.GenZshCompletion,
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return nil, err
		}
		files = append(files, file{name: "completions/" + name, data: b.Bytes()})
	}
	return files, nil
}

// manPages returns a man page for the command and each of its subcommands.
func (r *release) manPages(command *cobra.Command) ([]file, error) {
	command.DisableAutoGenTag = true // it contains the date
	var b bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Date: &r.time, Source: r.version, Manual: "orderclose"}
	if err := doc.GenMan(command, header, &b); err != nil {
		return nil, err
	}
	files := []file{{name: "man/man1/" + strings.ReplaceAll(command.CommandPath(), " ", "-") + ".1", data: b.Bytes()}}
	for _, sub := range command.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		pages, err := r.manPages(sub)
		if err != nil {
			return nil, err
		}
		files = append(files, pages...)
	}
	return files, nil
}
