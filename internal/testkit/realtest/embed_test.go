package realtest

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	return string(content)
}

// A program outside of this repository uses exported packages only: schedules, its own Store, the SQL store beside its
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

// buildEmbed builds examples/embed outside of this repository, with the packages of this folder, and returns the program.
func buildEmbed(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS("../../../examples/embed")))
	here := must.Get(filepath.Abs("../../.."))(t)
	for _, args := range [][]string{{"mod", "edit", "-replace", "github.com/orderclose/orderclose=" + here}, {"build", "-o", "embed", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		must.That(t, err == nil, "go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return filepath.Join(dir, "embed")
}
