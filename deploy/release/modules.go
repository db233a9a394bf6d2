package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// dependency is something that a release contains and that others wrote: a module or Go itself.
type dependency struct {
	name, version string
	sum           string // as in go.sum: h1: and the hash of its files; Go itself has none
	dir           string // where its files are on this machine
}

// modules returns the modules that the programs link, sorted by path, each as the go.mod of its program selects it.
func (r *release) modules() (all []dependency, err error) {
	own := r.programs[0].orderclose().Main.Path // which the modules of their own link
	for i, b := range built {
		var paths []string
		for _, p := range r.programs {
			for _, m := range p.binaries[i].info.Deps {
				if m.Path != own {
					paths = append(paths, m.Path)
				}
			}
		}
		slices.Sort(paths)
		linked, err := locate(filepath.Join(r.source, b.module), slices.Compact(paths)...)
		if err != nil {
			return nil, err
		}
		all = append(all, linked...)
	}
	slices.SortFunc(all, func(a, b dependency) int { return strings.Compare(a.name+" "+a.version, b.name+" "+b.version) })
	return slices.CompactFunc(all, func(a, b dependency) bool { return a.name == b.name && a.version == b.version }), nil
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
	list, err := run(dir, []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}, "go",
		append([]string{"list", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Sum}}\t{{.Dir}}", "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	var found []dependency
	for line := range strings.Lines(string(list)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		found = append(found, dependency{name: fields[0], version: fields[1], sum: fields[2], dir: fields[3]})
	}
	return found, nil
}

// dependencies returns Go, the linked modules, and the root certificates.
func (r *release) dependencies() ([]dependency, error) {
	goroot, err := run(r.source, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	linked, err := r.modules()
	if err != nil {
		return nil, err
	}
	certificates, err := r.rootCertificates()
	all := []dependency{{name: "Go", version: r.programs[0].orderclose().GoVersion, dir: strings.TrimSpace(string(goroot))}}
	return append(append(all, linked...), certificates), err
}

// licenses returns a file with the licenses of all dependencies. They require that their text goes with
// every copy.
func (r *release) licenses() (file, error) {
	all, err := r.dependencies()
	if err != nil {
		return file{}, err
	}
	var b bytes.Buffer
	for _, d := range all {
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

// knownLicenses are the licenses of dependencies by their SPDX id, as text that only they have. White
// space in a license is one space.
var knownLicenses = map[string]*regexp.Regexp{
	"Apache-2.0":   regexp.MustCompile(`Apache License,? Version 2\.0`),
	"MIT":          regexp.MustCompile(`Permission is hereby granted, free of charge, to any person`),
	"MPL-2.0":      regexp.MustCompile(`Mozilla Public License,? [Vv]ersion 2\.0`),
	"ISC":          regexp.MustCompile(`Permission to use, copy, modify, and(/or)? distribute`),
	"BSD-2-Clause": regexp.MustCompile(`Redistributions in binary form must reproduce`),
	"BSD-3-Clause": regexp.MustCompile(`(Neither the names?|The names?) of .{1,200}(may|nor)`),
}

// licenseIDs returns the licenses of a dependency as an SPDX expression. A license that it does not know
// is an error: somebody must read it before it is published.
func licenseIDs(d dependency) (string, error) {
	var texts bytes.Buffer
	if err := appendLicenses(&texts, d); err != nil {
		return "", err
	}
	text := strings.Join(strings.Fields(texts.String()), " ")
	var ids []string
	for id, known := range knownLicenses {
		if known.MatchString(text) {
			ids = append(ids, id)
		}
	}
	if slices.Contains(ids, "BSD-3-Clause") { // which has the clauses of the other too
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == "BSD-2-Clause" })
	}
	if len(ids) == 0 {
		return "", fmt.Errorf("the license of %s in %s is none of those that modules.go knows: read it, and add it", d.name, d.dir)
	}
	slices.Sort(ids)
	return strings.Join(ids, " AND "), nil
}
