package main

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/orderclose/orderclose/internal/cli"
)

// imageArchive returns the image for the targets with Linux, as a tar file with an OCI layout. The
// base is empty: the image has no shell and no package but orderclose.
func (r *release) imageArchive(licenses file) ([]byte, error) {
	own, err := r.tracked("LICENSE", "NOTICE", "topics.yaml")
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.programs {
		if p.os != "linux" {
			continue
		}
		files := []file{
			{name: "usr/share/doc/orderclose/" + licenses.name, data: licenses.data},
			{name: "usr/share/doc/orderclose/LICENSE", data: own[0].data},
			{name: "usr/share/doc/orderclose/NOTICE", data: own[1].data},
			{name: "etc/orderclose/topics.yaml", data: own[2].data},
			// Time zones need no file: the binaries contain them.
			{name: "etc/ssl/certs/ca-certificates.crt", data: certificates()},
		}
		for _, b := range p.binaries {
			files = append(files, file{name: "usr/local/bin/" + b.name, data: b.data, executable: true})
		}
		image, err := r.image(p, files)
		if err != nil {
			return nil, err
		}
		platform := &v1.Platform{OS: p.os, Architecture: p.arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return r.layout(index)
}

// image returns the image of one program. deploy/compose/Dockerfile builds the same image from
// source; a test compares the settings.
func (r *release) image(p program, files []file) (v1.Image, error) {
	var content bytes.Buffer
	if err := writeTar(&content, files, r.time); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, created
	config.Config = v1.Config{
		User:         "10001:10001",
		WorkingDir:   "/etc/orderclose",
		Entrypoint:   []string{"orderclose"},
		Cmd:          []string{"run", "all"},
		Env:          []string{"PATH=/usr/local/bin", "ORDERCLOSE_LISTEN=0.0.0.0:9464"},
		ExposedPorts: map[string]struct{}{"9464/tcp": {}},
		StopSignal:   "SIGTERM",
		// Docker reads it, other engines ignore it.
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "orderclose", "healthcheck"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 30 * time.Second,
		},
		Labels: r.labels(),
	}
	return mutate.ConfigFile(image, config)
}

// labels returns what the image says of itself, under the names of the OCI specification.
func (r *release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "orderclose",
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.revision,
		"org.opencontainers.image.created":  r.time.Format(time.RFC3339),
		"org.opencontainers.image.licenses": cli.License,
		"org.opencontainers.image.source":   "https://" + r.programs[0].orderclose().Main.Path,
	}
}

// certificates returns the root certificates of Mozilla as PEM. A certificate that Mozilla trusts
// with a condition is left out, because PEM cannot express the condition.
func certificates() []byte {
	var all []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return all
}

// layout returns the index and its images as an OCI layout in a tar file. The name of the image is
// orderclose, its tag the version.
func (r *release) layout(index v1.ImageIndex) ([]byte, error) {
	dir, err := os.MkdirTemp("", "orderclose-image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	err = written.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": "orderclose:" + r.version,                   // podman
		"io.containerd.image.name":          "docker.io/library/orderclose:" + r.version, // containerd, Docker
	}))
	if err != nil {
		return nil, err
	}
	var files []file
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files = append(files, file{name: name, data: data})
		return err
	})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = writeTar(&b, files, r.time)
	return b.Bytes(), err
}
