package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// target is a system and processor, as GOOS and GOARCH name them.
type target struct{ os, arch string }

// program has the binaries for a target: orderclose, and those of modules of their own.
type program struct {
	target
	binaries []binary
}

// binary is a program, as it is compiled.
type binary struct {
	name string
	data []byte
	info *debug.BuildInfo
}

// built are the binaries of a release, with the folder of each one's module.
var built = []struct{ name, module string }{{"orderclose", "."}, {"orderclose-payments", "payments"}}

// release is one commit and the programs that were built from it.
type release struct {
	source   string // a clone, with the commit checked out
	version  string // what `orderclose version` prints: the commit's tag, or a pseudo-version of Go
	revision string
	time     time.Time // of the commit
	programs []program
}

// build clones source into dir and compiles the binaries there for each target. In a clone Go finds
// the revision, also if source is a linked worktree, and no file that git ignores. It refuses a source
// with changes: they would be in the man pages and completions, which this program contains.
func build(source, dir string, targets []target) (*release, error) {
	changes, err := run(source, nil, "git", "status", "--porcelain", "--untracked-files")
	if err != nil {
		return nil, err
	}
	if len(changes) > 0 {
		return nil, fmt.Errorf("%s has uncommitted changes; commit or stash them:\n%s", source, changes)
	}
	r := &release{source: filepath.Join(dir, "source")}
	if _, err := run(source, nil, "git", "clone", "--quiet", ".", r.source); err != nil {
		return nil, err
	}
	for _, t := range targets {
		fmt.Fprintf(os.Stderr, "building for %s/%s\n", t.os, t.arch)
		p, err := compile(r.source, t, filepath.Join(dir, t.os+"_"+t.arch))
		if err != nil {
			return nil, err
		}
		if err := r.add(p); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// compile builds the binaries for a target in the folder dir. It sets every variable that changes the code, so
// that a binary does not depend on the settings of the person who builds it.
func compile(source string, t target, dir string) (program, error) {
	environ := []string{
		"CGO_ENABLED=0", "GOOS=" + t.os, "GOARCH=" + t.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off",
	}
	p := program{target: t}
	for _, b := range built {
		path := filepath.Join(dir, b.name)
		if _, err := run(filepath.Join(source, b.module), environ, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w",
			"-o", path, "./cmd/"+b.name); err != nil {
			return p, err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return p, err
		}
		info, err := buildinfo.Read(bytes.NewReader(data))
		if err != nil {
			return p, err
		}
		p.binaries = append(p.binaries, binary{name: b.name, data: data, info: info})
	}
	return p, nil
}

// orderclose returns what the binary of that name says of itself.
func (p program) orderclose() *debug.BuildInfo { return p.binaries[0].info }

// add adds a program to the release, and takes version, revision and time from it.
func (r *release) add(p program) error {
	settings := map[string]string{}
	for _, s := range p.orderclose().Settings {
		settings[s.Key] = s.Value
	}
	if settings["vcs.modified"] != "false" {
		return fmt.Errorf("a new clone has changes, or no revision: %v; check the configuration of git", p.orderclose().Settings)
	}
	committed, err := time.Parse(time.RFC3339, settings["vcs.time"])
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	r.version, r.revision, r.time = p.orderclose().Main.Version, settings["vcs.revision"], committed.UTC()
	r.programs = append(r.programs, p)
	return nil
}

// run runs a command in a folder, with more variables, and returns its output. The error has what
// it wrote to stderr.
func run(dir string, environ []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), environ...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s in %s: %w\n%s", strings.Join(cmd.Args, " "), dir, err, stderr.String())
	}
	return out, err
}
