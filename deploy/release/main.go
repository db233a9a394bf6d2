// Command release builds the files of a release from a commit: archives with the static binary for
// Linux and macOS, packages for dpkg and rpm, an image for containers, an SBOM, and checksums.
//
//	usage: release SOURCE OUT
//
// SOURCE is the repository without uncommitted changes, OUT a folder that is empty or does not
// exist. docs/release.md describes the files.
//
//	main.go      writes all files of a release, each target on its own
//	build.go     compiles the binaries, and reads version and revision from one
//	archive.go   the archive of a target: binaries, documents, completions, man pages
//	package.go   the packages of a target for dpkg and rpm
//	image.go     the image: binaries, topics.yaml, root certificates
//	sbom.go      the SBOM: what the release contains
//	modules.go   the modules that a release contains, and their licenses
//	files.go     tar archives and checksums
//	sign.go      the signature of the checksums
//
// Two runs on one commit with one version of Go give the same bytes. All times are the time of the
// commit, files are sorted, and no file contains a path of the machine.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// targets are the systems for which a release has a binary.
var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: release SOURCE OUT")
		os.Exit(2)
	}
	if err := makeRelease(os.Args[1], os.Args[2], targets); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// makeRelease builds the release of the commit that is checked out in source, for some targets, and
// writes it to out. The image is for the targets with Linux.
func makeRelease(source, out string, targets []target) error {
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty; remove it, or name another folder", out)
	}
	dir, err := os.MkdirTemp("", "orderclose-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r, err := build(source, dir, targets)
	if err != nil {
		return err
	}
	files, err := r.files()
	if err != nil {
		return err
	}
	sums := checksums(files)
	signature, err := r.signature(sums)
	if err != nil {
		return err
	}
	files = append(append(files, sums), signature...)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(out, f.name), f.data, 0o644); err != nil {
			return err
		}
		fmt.Println(filepath.Join(out, f.name))
	}
	return nil
}

// files returns the files of the release without the checksums.
func (r *release) files() ([]file, error) {
	documents, err := r.documents()
	if err != nil {
		return nil, err
	}
	licenses, err := r.licenses()
	if err != nil {
		return nil, err
	}
	var files []file
	for _, p := range r.programs {
		var b bytes.Buffer
		if err := r.writeArchive(&b, p, append(documents, licenses)); err != nil {
			return nil, err
		}
		files = append(files, file{name: r.archiveName(p.target) + ".tar.gz", data: b.Bytes()})
		packages, err := r.packages(p, append(documents, licenses))
		if err != nil {
			return nil, err
		}
		files = append(files, packages...)
	}
	image, err1 := r.imageArchive(licenses)
	bom, err2 := r.sbom()
	return append(files,
		file{name: "orderclose_" + r.version + "_image.tar", data: image},
		file{name: "orderclose_" + r.version + ".sbom.json", data: bom},
	), errors.Join(err1, err2)
}
