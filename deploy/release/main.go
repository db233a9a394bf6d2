// Command release makes the parts of a release that goreleaser cannot make without a container engine or a network.
//
//	release docs VERSION DATE DIR           man pages and completions
//	release image VERSION DATE COMMIT OUT   the image, in the folder dist
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/cobra/doc"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/orderclose/orderclose/internal/cli"
)

// prepared is the folder of prepare.sh, as dist sees it.
const prepared = "../bin/release/"

// settings are those of deploy/compose/Dockerfile. Docker reads the health check, other engines ignore it.
var settings = v1.Config{
	User: "10001:10001", WorkingDir: "/etc/orderclose", Entrypoint: []string{"orderclose"}, Cmd: []string{"run", "all"}, StopSignal: "SIGTERM",
	Env: []string{"PATH=/usr/local/bin", "ORDERCLOSE_LISTEN=0.0.0.0:9464"}, ExposedPorts: map[string]struct{}{"9464/tcp": {}},
	Healthcheck: &v1.HealthConfig{
		Test: []string{"CMD", "orderclose", "healthcheck"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 30 * time.Second,
	},
}

func main() {
	version, date, last := os.Args[2], get(time.Parse(time.RFC3339, os.Args[3])), os.Args[len(os.Args)-1]
	if os.Args[1] == "docs" {
		get(0, docs(version, date, last))
	} else {
		image(version, date, os.Args[4], last)
	}
}

func get[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func docs(version string, date time.Time, dir string) error {
	root := cli.Root()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	return errors.Join(
		doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: version, Manual: "orderclose"}, dir+"/man/man1"),
		root.GenBashCompletionFileV2(dir+"/completions/orderclose.bash", true),
		root.GenFishCompletionFile(dir+"/completions/orderclose.fish", true),
		root.GenZshCompletionFile(dir+"/completions/_orderclose"))
}

// image writes the image for both processors as a tar file with an OCI layout. The base is empty.
func image(version string, date time.Time, commit, out string) {
	var roots bytes.Buffer // of Mozilla, without those that it trusts with a condition: PEM has no conditions
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			get(0, pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	get(0, os.WriteFile(prepared+"image/etc/ssl/certs/ca-certificates.crt", roots.Bytes(), 0o644))
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		folders := map[string]string{prepared + "image": ""}
		for _, programs := range get(filepath.Glob("orderclose*_linux_" + arch + "_*")) {
			folders[programs] = "usr/local/bin"
		}
		content := pack(folders, date)
		layer := get(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
			tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching))
		base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		image := get(mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: date}}}))
		config := get(image.ConfigFile()).DeepCopy()
		config.OS, config.Architecture, config.Created, config.Config = "linux", arch, v1.Time{Time: date}, settings
		config.Config.Labels = map[string]string{}
		for label, value := range map[string]string{"title": "orderclose", "version": version, "revision": commit, "created": date.Format(time.RFC3339),
			"licenses": cli.License, "source": "https://github.com/orderclose/orderclose"} {
			config.Config.Labels["org.opencontainers.image."+label] = value
		}
		platform := &v1.Platform{OS: config.OS, Architecture: arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: get(mutate.ConfigFile(image, config)), Descriptor: v1.Descriptor{Platform: platform}})
	}
	get(0, get(layout.Write(prepared+"layout", empty.Index)).AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": "orderclose:" + version,                   // podman
		"io.containerd.image.name":          "docker.io/library/orderclose:" + version, // containerd, Docker
	})))
	get(0, os.WriteFile(out, pack(map[string]string{prepared + "layout": ""}, date), 0o644))
}

// pack returns folders as a tar file that is the same on every machine. The value of a folder is its path in the file.
func pack(folders map[string]string, date time.Time) []byte {
	files := fstest.MapFS{}
	for from, to := range folders {
		get(0, filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
			file := &fstest.MapFile{Mode: entry.Type() | 0o755, ModTime: date}
			if !entry.IsDir() {
				file.Data = get(os.ReadFile(name))
			}
			if get(entry.Info()).Mode()&0o100 == 0 {
				file.Mode = 0o644
			}
			files[path.Join(to, filepath.ToSlash(get(filepath.Rel(from, name))))] = file
			return err
		}))
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	get(0, errors.Join(w.AddFS(files), w.Close()))
	return b.Bytes()
}
