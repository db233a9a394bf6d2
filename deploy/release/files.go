package main

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file of the release, or of an archive in it. Its name is a path with slashes.
type file struct {
	name       string
	data       []byte
	executable bool
}

// writeTar writes files and their folders, sorted by name, as files of root that were modified at
// one time.
func writeTar(w io.Writer, files []file, modified time.Time) error {
	byName := map[string]file{}
	for _, f := range files {
		byName[f.name] = f
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			byName[dir+"/"] = file{}
		}
	}
	archive := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		f := byName[name]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(f.data)), Mode: 0o644, ModTime: modified, Format: tar.FormatUSTAR}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		} else if f.executable {
			h.Mode = 0o755
		}
		if err := archive.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := archive.Write(f.data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return archive.Close()
}

// checksums returns the file SHA256SUMS, which sha256sum -c reads.
func checksums(files []file) file {
	var lines strings.Builder
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) }) {
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(f.data), f.name)
	}
	return file{name: "SHA256SUMS", data: []byte(lines.String())}
}
