package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A user can replace the image of a release by that of the Dockerfile.
func TestImage_HasTheSettingsOfTheDockerfile(t *testing.T) {
	_, final, _ := strings.Cut(string(must.Get(os.ReadFile("../compose/Dockerfile"))(t)), "\nFROM scratch\n")
	have := slices.DeleteFunc(regexp.MustCompile(`(?m)^[A-Z]+ .*$`).FindAllString(final, -1), func(line string) bool { return strings.HasPrefix(line, "COPY ") })
	list := func(words []string) string {
		return strings.ReplaceAll(string(must.Get(json.Marshal(words))(t)), ",", ", ")
	}
	h, ports := settings.Healthcheck, slices.Collect(maps.Keys(settings.ExposedPorts))
	expect.Same(t, have, []string{
		"WORKDIR " + settings.WorkingDir, "USER " + settings.User, "ENV " + settings.Env[0], "ENV " + settings.Env[1],
		"EXPOSE " + strings.TrimSuffix(ports[0], "/tcp"),
		fmt.Sprintf("HEALTHCHECK --interval=%v --timeout=%v --start-period=%v CMD %s", h.Interval, h.Timeout, h.StartPeriod, list(h.Test[1:])),
		"STOPSIGNAL " + settings.StopSignal, "LABEL org.opencontainers.image.licenses=" + cli.License,
		"ENTRYPOINT " + list(settings.Entrypoint), "CMD " + list(settings.Cmd),
	}, "the Dockerfile differs from the image")
}

func TestImage_TwoBuildsGiveTheSameBytes(t *testing.T) {
	var files [2][]byte
	for i := range files {
		dist := filepath.Join(t.TempDir(), "dist")
		must.Do(t, os.MkdirAll(filepath.Join(dist, prepared, "image/etc/ssl/certs"), 0o700))
		must.Do(t, os.MkdirAll(filepath.Join(dist, "orderclose_linux_amd64_v1"), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dist, "orderclose_linux_amd64_v1/orderclose"), []byte("program"), 0o700))
		t.Chdir(dist)
		image("v1.2.3", time.Unix(1_700_000_000, 0).UTC(), "0123", "image.tar")
		files[i] = must.Get(os.ReadFile("image.tar"))(t)
		expect.NoError(t, validate.Index(must.Get(layout.ImageIndexFromPath(prepared+"layout"))(t)))
	}
	expect.That(t, bytes.Equal(files[0], files[1]), "two images of a commit differ")
}

// The programs are those of the Dockerfile and of the units, built in the same way.
func TestGoreleaser_BuildsWhatTheDockerfileAndTheUnitsNeed(t *testing.T) {
	t.Chdir("../..")
	read := func(name string) string { return string(must.Get(os.ReadFile(name))(t)) }
	var c struct {
		Builds []struct{ Binary, Dir, Main string }
		NFPMs  []struct{ License string }
	}
	text := read(".goreleaser.yaml")
	must.Do(t, yaml.Unmarshal([]byte(text), &c))
	expect.That(t, strings.Contains(text, "flags: [-trimpath, ") && strings.Contains(text, "ldflags: [-s -w]"), "the flags are not those of the Dockerfile")
	for _, b := range c.Builds {
		built := fmt.Sprintf("CGO_ENABLED=0 go build -C %s -trimpath -ldflags='-s -w' -o /%s %s\n", b.Dir, b.Binary, b.Main)
		built = strings.Replace(built, "-C  ", "", 1)
		expect.That(t, strings.Contains(read("deploy/compose/Dockerfile"), built), "the Dockerfile does not build %q", built)
	}
	for _, unit := range must.Get(filepath.Glob("deploy/systemd/*.service"))(t) {
		for _, start := range regexp.MustCompile(`ExecStart=/usr/local/bin/(\S+)`).FindAllStringSubmatch(read(unit), -1) {
			expect.That(t, strings.Contains(text, "\n    binary: "+start[1]+"\n"), "%s starts %s", unit, start[1])
		}
	}
	expect.Equal(t, c.NFPMs[0].License, cli.License, "the license of a package")
	expect.That(t, strings.Contains(read("deploy/helm/orderclose/Chart.yaml"), "artifacthub.io/license: "+cli.License+"\n"), "the chart has another license")
}
