package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// dependency is something that a release contains and that others wrote: a module or Go itself.
type dependency struct {
	name, version string
	dir           string // where its files are on this machine
}

// modules returns the modules that the programs link, sorted by path.
func (r *release) modules() []*debug.Module {
	var all []*debug.Module
	for _, p := range r.programs {
		all = append(all, p.info.Deps...)
	}
	slices.SortFunc(all, func(a, b *debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(all, func(a, b *debug.Module) bool { return a.Path == b.Path })
}

// rootCertificates returns the module whose root certificates the image contains.
func (r *release) rootCertificates() (dependency, error) {
	found, err := locate(filepath.Join(r.source, "deploy/release"), "golang.org/x/crypto/x509roots/fallback")
	if err != nil {
		return dependency{}, err
	}
	return found[0], nil
}

// locate returns the modules with these paths, in the versions that the go.mod in a folder selects.
func locate(dir string, paths ...string) ([]dependency, error) {
	list, err := run(dir, []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}, "go", append([]string{"list", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Dir}}", "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	var found []dependency
	for line := range strings.Lines(string(list)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		found = append(found, dependency{name: fields[0], version: fields[1], dir: fields[2]})
	}
	return found, nil
}

// licenses returns a file with the licenses of Go, of the linked modules and of the root
// certificates. They require that their text goes with every copy.
func (r *release) licenses() (file, error) {
	goroot, err := run(r.source, nil, "go", "env", "GOROOT")
	if err != nil {
		return file{}, err
	}
	var paths []string
	for _, m := range r.modules() {
		paths = append(paths, m.Path)
	}
	linked, err := locate(r.source, paths...)
	if err != nil {
		return file{}, err
	}
	certificates, err := r.rootCertificates()
	if err != nil {
		return file{}, err
	}
	all := []dependency{{name: "Go", version: r.programs[0].info.GoVersion, dir: strings.TrimSpace(string(goroot))}}
	var b bytes.Buffer
	for _, d := range append(append(all, linked...), certificates) {
		if err := appendLicenses(&b, d); err != nil {
			return file{}, err
		}
	}
	return file{name: "THIRD-PARTY-LICENSES", data: b.Bytes()}, nil
}

// licenseFile matches the files in which authors grant a license, or that must go with it.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-].*)?$`)

func appendLicenses(b *bytes.Buffer, d dependency) error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("license of %s: %w", d.name, err)
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(d.dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "==== %s %s: %s\n\n%s\n\n", d.name, d.version, e.Name(), bytes.TrimSpace(text))
		found = true
	}
	if !found {
		return fmt.Errorf("%s has no license file in %s; without one it must not be published", d.name, d.dir)
	}
	return nil
}
