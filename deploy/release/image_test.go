package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// images returns the images of the release, by processor.
func images(t *testing.T) map[string]v1.Image {
	t.Helper()
	dir := t.TempDir()
	for name, data := range unpacked(t, bytes.NewReader(released(t)["orderclose_"+tag+"_image.tar"])) {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, data, 0o644))
	}
	outer := must.Get(layout.ImageIndexFromPath(dir))(t)
	expect.NoError(t, validate.Index(outer))
	list := must.Get(outer.IndexManifest())(t)
	must.That(t, len(list.Manifests) == 1 && list.Manifests[0].Annotations["org.opencontainers.image.ref.name"] == "orderclose:"+tag,
		"the layout has %+v, want one image with the tag %s", list.Manifests, tag)
	inner := must.Get(outer.ImageIndex(list.Manifests[0].Digest))(t)
	list = must.Get(inner.IndexManifest())(t)
	all := map[string]v1.Image{}
	for _, m := range list.Manifests {
		expect.Equal(t, m.Platform.OS, "linux", "there is an image for %s", m.Platform)
		all[m.Platform.Architecture] = must.Get(inner.Image(m.Digest))(t)
	}
	return all
}

func TestImage_HasTheBinaryOfEachArchiveForLinux(t *testing.T) {
	all := images(t)
	for _, x := range chosenTargets() {
		if x.os != "linux" {
			continue
		}
		must.That(t, all[x.arch] != nil, "no image for %s", x.arch)
		files := unpacked(t, mutate.Extract(all[x.arch]))
		for _, b := range built {
			if binary := files["usr/local/bin/"+b.name]; !bytes.Equal(binary, archive(t, x)[b.name]) {
				t.Errorf("%s: %s is not that of the archive", x.arch, b.name)
			} else if b.name == "orderclose" {
				requireVersion(t, x, binary)
			}
		}
		roots := x509.NewCertPool()
		expect.That(t, roots.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]), "%s: no root certificates", x.arch)
		path := filepath.Join(t.TempDir(), "topics.yaml")
		must.Do(t, os.WriteFile(path, files["etc/orderclose/topics.yaml"], 0o644))
		_, err := config.Load(path)
		expect.That(t, err == nil, "%s: %v", x.arch, err)
		expect.Equal(t, len(files), 5+len(built), "%s: the image has %v", x.arch, slices.Sorted(maps.Keys(files)))
		delete(all, x.arch)
	}
	expect.That(t, len(all) == 0, "there are images for %v, too", slices.Collect(maps.Keys(all)))
}

// So a user can replace one image by the other.
func TestImage_HasTheSettingsOfTheDockerfile(t *testing.T) {
	for arch, image := range images(t) {
		config := must.Get(image.ConfigFile())(t)
		got := config.Config
		l := got.Labels
		expect.That(t, l["org.opencontainers.image.revision"] == revision(t) &&
			l["org.opencontainers.image.version"] == tag &&
			l["org.opencontainers.image.licenses"] == cli.License, "%s: labels %v", arch, l)
		got.Labels = nil
		expect.Same(t, got, dockerfile(t), "%s: the image differs from the Dockerfile", arch)
	}
}

// dockerfile returns the settings in the last stage of deploy/compose/Dockerfile, and requires that it builds the same binary and has the same files.
func dockerfile(t *testing.T) v1.Config {
	t.Helper()
	text := must.Get(os.ReadFile("../compose/Dockerfile"))(t)
	build, final, found := strings.Cut(string(text), "\nFROM scratch\n")
	must.That(t, found, "the base of the Dockerfile is not empty")
	expect.That(t, strings.Contains(build, "CGO_ENABLED=0 go build -trimpath -ldflags='-s -w'"), "the Dockerfile has other flags of go build")
	for _, path := range []string{"/usr/local/bin/orderclose", "/usr/local/bin/orderclose-payments",
		"/etc/orderclose/topics.yaml", "/etc/ssl/certs/ca-certificates.crt", "/usr/share/doc/orderclose/"} {
		expect.That(t, regexp.MustCompile(`(?m)^COPY .* `+path+`$`).MatchString(final), "the Dockerfile copies no %s", path)
	}
	var c v1.Config
	for _, line := range regexp.MustCompile(`(?m)^([A-Z]+) (.*)$`).FindAllStringSubmatch(final, -1) {
		switch value := line[2]; line[1] {
		case "USER":
			c.User = value
		case "WORKDIR":
			c.WorkingDir = value
		case "ENV":
			c.Env = append(c.Env, value)
		case "EXPOSE":
			c.ExposedPorts = map[string]struct{}{value + "/tcp": {}}
		case "STOPSIGNAL":
			c.StopSignal = value
		case "ENTRYPOINT":
			c.Entrypoint = list(t, value)
		case "CMD":
			c.Cmd = list(t, value)
		case "HEALTHCHECK":
			c.Healthcheck = health(t, value)
		case "COPY", "LABEL":
		default:
			t.Errorf("the image of the release has no %s", line[0])
		}
	}
	return c
}

func list(t *testing.T, value string) []string {
	t.Helper()
	var all []string
	err := json.Unmarshal([]byte(value), &all)
	must.That(t, err == nil, "%s: %v", value, err)
	return all
}

func health(t *testing.T, value string) *v1.HealthConfig {
	t.Helper()
	flags, command, _ := strings.Cut(value, " CMD ")
	h := &v1.HealthConfig{Test: append([]string{"CMD"}, list(t, command)...)}
	for _, f := range strings.Fields(flags) {
		name, value, _ := strings.Cut(f, "=")
		d := must.Get(time.ParseDuration(value))(t)
		switch name {
		case "--interval":
			h.Interval = d
		case "--timeout":
			h.Timeout = d
		case "--start-period":
			h.StartPeriod = d
		default:
			t.Errorf("the image of the release has no %s", f)
		}
	}
	return h
}
