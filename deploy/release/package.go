package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	packaged "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"

	"github.com/orderclose/orderclose/internal/cli"
)

// packageKinds are the kinds of packages, by the ending of a file, with what a package of the kind recommends: the units need the specifier %d.
var packageKinds = []struct{ ending, recommends string }{{"deb", "systemd (>= 250)"}, {"rpm", "systemd >= 250"}}

const (
	// configuration is the folder that the units read.
	configuration = "/etc/orderclose/"
	// variables is the file with the variables of a role, which its unit requires.
	variables = `# Variables of orderclose@ROLE.service, such as the brokers. /usr/share/doc/orderclose/docs has the others, and the README
# of deploy/systemd beside it how to begin.
# ORDERCLOSE_KAFKA_BROKERS=kafka-1:9092,kafka-2:9092
`
)

// scripts make systemd read the units that came, changed or went, and stop the processes of a package that is removed. Its first
// argument is then remove (dpkg), or the number of versions that are left (rpm).
var scripts = map[string]string{
	"reload": "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n",
	"stop": "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ] && { [ \"$1\" = remove ] || [ \"$1\" = 0 ]; }; then\n" +
		"  systemctl stop 'orderclose@*' orderclose-payments.service orderclose-setup.service\nfi\n",
}

// packages returns the packages of a program for Linux, for dpkg and for rpm. documents are the files of an archive without the binaries.
func (r *release) packages(p program, documents []file) ([]file, error) {
	if p.os != "linux" {
		return nil, nil
	}
	dir := filepath.Join(filepath.Dir(r.source), "package_"+p.arch) // nfpm reads files
	contents, err := r.contents(dir, p, documents)
	if err != nil {
		return nil, err
	}
	var all []file
	for _, kind := range packageKinds {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "orderclose", Arch: p.arch, Version: r.version, MTime: r.time, DisableGlobbing: true,
			Description: "Unpaid orders close on time\nThe programs of orderclose, and their units for systemd.",
			Section:     "net", License: cli.License, Homepage: "https://" + p.orderclose().Main.Path,
			Maintainer: "The orderclose authors <https://" + p.orderclose().Main.Path + ">",
			Overridables: nfpm.Overridables{
				Contents: contents, Recommends: []string{kind.recommends}, RPM: nfpm.RPM{BuildHost: "localhost"},
				Scripts: nfpm.Scripts{PostInstall: filepath.Join(dir, "reload"), PreRemove: filepath.Join(dir, "stop"), PostRemove: filepath.Join(dir, "reload")},
			},
		})
		packager, err := nfpm.Get(kind.ending)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := packager.Package(info, &b); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.ending, err)
		}
		all = append(all, file{name: r.archiveName(p.target) + "." + kind.ending, data: b.Bytes()})
	}
	return all, nil
}

// contents writes the files and scripts of a package to the folder dir, and returns where they are installed.
func (r *release) contents(dir string, p program, documents []file) (all packaged.Contents, err error) {
	add := func(f file) {
		mode := os.FileMode(0o644)
		if f.executable {
			mode = 0o755
		}
		source := filepath.Join(dir, filepath.FromSlash(f.name))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(source), 0o755)
		}
		if err == nil {
			err = os.WriteFile(source, f.data, mode)
		}
		kind := packaged.TypeFile
		if strings.HasPrefix(f.name, configuration) {
			kind = packaged.TypeConfigNoReplace
		}
		all = append(all, &packaged.Content{Source: source, Destination: f.name, Type: kind, FileInfo: &packaged.ContentFileInfo{Mode: mode}})
	}
	for _, b := range p.binaries {
		add(file{name: "/usr/bin/" + b.name, data: b.data, executable: true})
	}
	for _, f := range documents {
		f.name = installed(f.name)
		if path.Ext(f.name) == ".service" {
			f.data = bytes.ReplaceAll(f.data, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
		}
		add(f)
	}
	add(file{name: configuration + "environment", data: []byte(variables)})
	for _, secrets := range []string{"secrets", "payments-secrets"} {
		all = append(all, &packaged.Content{Destination: configuration + secrets, Type: packaged.TypeDir, FileInfo: &packaged.ContentFileInfo{Mode: 0o700}})
	}
	for name, text := range scripts {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755)
		}
	}
	return all, err
}

// installed returns where a package installs a file of an archive.
func installed(name string) string {
	folder, base := path.Split(name)
	switch {
	case name == "topics.yaml" || name == "topics.schema.json":
		return configuration + base
	case path.Ext(name) == ".service":
		return "/usr/lib/systemd/system/" + base
	case folder == "man/man1/":
		return "/usr/share/man/man1/" + base
	}
	where := map[string]string{
		"completions/orderclose.bash": "/usr/share/bash-completion/completions/orderclose",
		"completions/_orderclose":     "/usr/share/zsh/site-functions/_orderclose",
		"completions/orderclose.fish": "/usr/share/fish/vendor_completions.d/orderclose.fish",
		"LICENSE":                     "/usr/share/doc/orderclose/copyright",
	}[name]
	if where == "" {
		where = "/usr/share/doc/orderclose/" + name
	}
	return where
}
