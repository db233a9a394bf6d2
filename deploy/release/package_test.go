package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/sassoftware/go-rpmutils"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// installedFile is a file of a package.
type installedFile struct {
	data []byte
	mode int64
}

// unpackedDeb returns the files of a package for dpkg, and what it says of itself, by name.
func unpackedDeb(t *testing.T, data []byte) (files, control map[string]installedFile) {
	t.Helper()
	parts := map[string]map[string]installedFile{}
	for members := ar.NewReader(bytes.NewReader(data)); ; {
		h, err := members.Next()
		if err == io.EOF {
			return parts["data.tar.gz"], parts["control.tar.gz"]
		}
		must.Do(t, err)
		if !strings.HasSuffix(h.Name, ".tar.gz") {
			continue
		}
		all := map[string]installedFile{}
		for archive := tar.NewReader(must.Get(gzip.NewReader(members))(t)); ; {
			f, err := archive.Next()
			if err == io.EOF {
				break
			}
			must.Do(t, err)
			expect.That(t, f.Uid+f.Gid == 0, "%s belongs to %d:%d", f.Name, f.Uid, f.Gid)
			all["/"+strings.Trim(strings.TrimPrefix(f.Name, "."), "/")] = installedFile{must.Get(io.ReadAll(archive))(t), f.Mode & 0o777}
		}
		parts[h.Name] = all
	}
}

// unpackedRPM returns the files of a package for rpm.
func unpackedRPM(t *testing.T, data []byte) map[string]installedFile {
	t.Helper()
	rpm := must.Get(rpmutils.ReadRpm(bytes.NewReader(data)))(t)
	contents := must.Get(rpm.PayloadReaderExtended())(t)
	files := map[string]installedFile{}
	for {
		f, err := contents.Next()
		if err == io.EOF {
			return files
		}
		must.Do(t, err)
		expect.That(t, f.UserName() == "root" && f.GroupName() == "root", "%s belongs to %s:%s", f.Name(), f.UserName(), f.GroupName())
		one := installedFile{mode: int64(f.Mode() & 0o777)}
		if f.Size() > 0 && !contents.IsLink() {
			one.data = must.Get(io.ReadAll(contents))(t)
		}
		files[strings.TrimSuffix(f.Name(), "/")] = one
	}
}

func TestPackage_HasTheBinariesUnitsAndDocumentsOfTheArchive(t *testing.T) {
	for _, x := range chosenTargets() {
		if x.os != "linux" {
			continue
		}
		inArchive, name := archive(t, x), "orderclose_"+tag+"_linux_"+x.arch
		deb, control := unpackedDeb(t, released(t)[name+".deb"])
		for kind, files := range map[string]map[string]installedFile{"deb": deb, "rpm": unpackedRPM(t, released(t)[name+".rpm"])} {
			for from, data := range inArchive {
				want, mode := data, int64(0o644)
				to := installed(from)
				switch {
				case slices.ContainsFunc(built, func(b struct{ name, module string }) bool { return b.name == from }):
					to, mode = "/usr/bin/"+from, 0o755
				case strings.HasSuffix(from, ".service"):
					want = bytes.ReplaceAll(data, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
				case strings.HasSuffix(from, ".sh"):
					mode = 0o755
				}
				have, is := files[to]
				expect.That(t, is && bytes.Equal(have.data, want), "%s for %v: %s is not that of the archive", kind, x, to)
				expect.Equal(t, have.mode, mode, "%s for %v: the mode of %s", kind, x, to)
			}
			for _, secrets := range []string{"/etc/orderclose/secrets", "/etc/orderclose/payments-secrets"} {
				have, is := files[secrets]
				expect.That(t, is && have.mode == 0o700, "%s for %v: %s has the mode %o", kind, x, secrets, have.mode)
			}
			expect.That(t, len(files["/etc/orderclose/environment"].data) > 0, "%s for %v has no file of variables", kind, x)
			for path, f := range files {
				if strings.HasSuffix(path, ".service") {
					expect.That(t, bytes.Contains(f.data, []byte("ExecStart=/usr/bin/orderclose")), "%s for %v: %s starts another program", kind, x, path)
				}
			}
			requireVersion(t, x, files["/usr/bin/orderclose"].data)
		}
		said := string(control["/control"].data)
		for _, line := range []string{"Package: orderclose", "Version: " + strings.TrimPrefix(tag, "v"), "Architecture: " + x.arch, "Recommends: systemd (>= 250)"} {
			expect.That(t, strings.Contains(said, line+"\n"), "the package for %v does not say %q:\n%s", x, line, said)
		}
		expect.Equal(t, string(control["/conffiles"].data), "/etc/orderclose/environment\n/etc/orderclose/topics.schema.json\n/etc/orderclose/topics.yaml\n",
			"the files that an update keeps")
		for script, what := range map[string]string{"/postinst": "reload", "/prerm": "stop", "/postrm": "reload"} {
			expect.Equal(t, string(control[script].data), scripts[what], "the script %s", script)
		}
		rpm := must.Get(rpmutils.ReadRpm(bytes.NewReader(released(t)[name+".rpm"])))(t)
		nevra := must.Get(rpm.Header.GetNEVRA())(t)
		expect.Equal(t, nevra.Name+" "+nevra.Version, "orderclose "+strings.TrimPrefix(tag, "v"), "the package of rpm is")
		expect.Equal(t, must.Get(rpm.Header.GetString(rpmutils.LICENSE))(t), cli.License, "the license of the package of rpm")
	}
}

// dpkg itself installs the package into a folder, and removes it.
func TestPackage_DpkgInstallsIt(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil || os.Getuid() != 0 {
		t.Skip("dpkg is not installed, or this is not root")
	}
	arch := strings.TrimSpace(string(must.Get(run(".", nil, "dpkg", "--print-architecture"))(t)))
	data := released(t)["orderclose_"+tag+"_linux_"+arch+".deb"]
	if data == nil {
		t.Skip("there is no package for ", arch)
	}
	root := t.TempDir()
	name := filepath.Join(t.TempDir(), "orderclose.deb")
	must.Do(t, os.WriteFile(name, data, 0o600))
	must.Do(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755))
	must.Do(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/info"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600))
	dpkg := func(args ...string) {
		must.Get(run(".", nil, "dpkg", append([]string{"--root=" + root, "--force-not-root,script-chrootless", "--log=/dev/null"}, args...)...))(t)
	}
	dpkg("--install", name)
	out := must.Get(run(".", nil, filepath.Join(root, "usr/bin/orderclose"), "version"))(t)
	expect.That(t, strings.Contains(string(out), tag), "the installed program says %s", out)
	dpkg("--remove", "orderclose")
	kept := must.Get(filepath.Glob(filepath.Join(root, "etc/orderclose/topics.yaml")))(t)
	expect.That(t, len(kept) == 1, "the package took the settings along")
	gone := must.Get(filepath.Glob(filepath.Join(root, "usr/bin/orderclose*")))(t)
	expect.That(t, len(gone) == 0, "%v are left", gone)
}
