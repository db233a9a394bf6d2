package realtest

import (
	"archive/zip"
	"crypto/rand"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// publish puts this module into a file-system module proxy under a version, and returns the path of the module and the URL of the proxy.
func publish(t *testing.T, version string) (module, proxy string) {
	t.Helper()
	const root = "../../.."
	goMod := readFile(t, filepath.Join(root, "go.mod"))
	module = strings.Fields(goMod)[1]
	dir := t.TempDir()
	versions := filepath.Join(dir, filepath.FromSlash(module), "@v")
	must.Do(t, os.MkdirAll(versions, 0o755))
	for name, content := range map[string]string{"list": version + "\n", version + ".mod": goMod, version + ".info": `{"Version": "` + version + `"}`} {
		must.Do(t, os.WriteFile(filepath.Join(versions, name), []byte(content), 0o600))
	}
	file := must.Get(os.Create(filepath.Join(versions, version+".zip")))(t)
	z := zip.NewWriter(file)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (nested == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		inside, err := filepath.Rel(root, path)
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w, err := z.Create(module + "@" + version + "/" + filepath.ToSlash(inside))
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = file.Close()
	}
	must.Do(t, err)
	return module, "file://" + filepath.ToSlash(dir)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	return string(content)
}

// A program outside of this repository gets the module by go get, and uses exported packages only: schedules, its own Store, the SQL store beside its
// own pool, its own payment provider, registerer and logger, and the events.
func TestReal_AProgramEmbedsTheModule(t *testing.T) {
	placementOf(t)
	t.Parallel()
	program := buildEmbed(t)
	oneDatabaseAfterAnother(t, func(t *testing.T, s environ.Servers, _ database) {
		t.Parallel()
		dsn, drop, err := scenario.CreateDatabase(t.Context(), s.DSN, nil, "embed_"+strings.ToLower(rand.Text()))
		must.Do(t, err)
		defer func() {
			expect.NoError(t, drop(t.Context()))
		}()
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), environ.EnvDSN+"="+dsn)
		out, err := cmd.CombinedOutput()
		expect.That(t, err == nil, "%v\n%s", err, out)
		for _, want := range []string{
			`booking "table 4, friday" is closed`, "operator: order-read is unpaid, and overdue by", "operator: resumed 1 pause",
			"order-read was read: closed", "order-unpaid was closed by the",
			"1 lines came back", "stock: 98 available, 2 reserved",
		} {
			expect.That(t, strings.Contains(string(out), want), "no %q in\n%s", want, out)
		}
	})
}

// buildEmbed builds examples/embed outside of this repository, and returns the program. In make test it is built with the packages of this folder, which
// are compiled already. In make test-all the module comes from a proxy: its version is new each time, and is removed from the module cache in the end.
func buildEmbed(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS("../../../examples/embed")))
	version := "v0.0.1-" + strings.ToLower(rand.Text())
	var module, proxy string
	command := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		// The build has the compiler's flags of this run. With other flags it would compile each dependency again.
		flags := os.Getenv("GOFLAGS") + " -modcacherw"
		cmd.Env = append(os.Environ(), "GOFLAGS="+flags, "GOPRIVATE=", "GOWORK=off")
		if module != "" {
			cmd.Env = append(cmd.Env, "GOPROXY="+proxy, "GONOSUMDB="+module)
		}
		out, err := cmd.CombinedOutput()
		must.That(t, err == nil, "go %s: %v\n%s", strings.Join(args, " "), err, out)
		return string(out)
	}
	if !ring.All() {
		here := must.Get(filepath.Abs("../../.."))(t)
		command("mod", "edit", "-replace", "github.com/orderclose/orderclose="+here)
		command("build", "-o", "embed", ".")
		return filepath.Join(dir, "embed")
	}
	module, proxy = publish(t, version)
	found := must.Get(exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output())(t)
	cache, usual, _ := strings.Cut(strings.TrimSpace(string(found)), "\n")
	t.Cleanup(func() {
		inCache := filepath.FromSlash(module)
		leftovers, _ := filepath.Glob(filepath.Join(cache, "cache/download", inCache, "@v", version+".*"))
		for _, path := range append(leftovers, filepath.Join(cache, inCache)+"@"+version) {
			expect.NoError(t, os.RemoveAll(path))
		}
	})
	proxy += "," + usual
	command("mod", "edit", "-dropreplace", module, "-droprequire", module)
	command("get", module+"@"+version)
	command("build", "-o", "embed", ".")
	expect.Equal(t, command("list", "-m", module), module+" "+version+"\n", "the program was built with")
	return filepath.Join(dir, "embed")
}
