package realtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/storetest"
)

// TestUpgrade_UnderLoadAndBackLosesNothing does what docs/upgrade.md says, from the program of another commit
// to this one and back, while a shop creates orders. The newer schema has another table. Each role has two processes, so while they are replaced,
// two versions share the partitions of each group.
//
// make test-upgrade runs it, and sets UPGRADE_FROM to the commit.
func TestUpgrade_UnderLoadAndBackLosesNothing(t *testing.T) {
	from := os.Getenv("UPGRADE_FROM")
	if from == "" {
		t.Skip("make test-upgrade plays upgrades")
	}
	old := buildCommit(t, from)
	eachDatabase(t, func(t *testing.T, s environ.Servers) { upgradeAndBack(t, s, old) })
}

// upgradeOrders are created while processes are replaced; on a busy machine the last ones are replaced later.
const upgradeOrders = 600

const notes = "CREATE TABLE notes (id BIGINT PRIMARY KEY);\n"

func upgradeAndBack(t *testing.T, s environ.Servers, old string) {
	current := must.Get(binary())(t)
	r := newRigBy(t, s, old)
	r.disturbed = true // each restart hands partitions over
	r.useOutbox()
	parts := []string{"relay-1", "relay-2", "closer-1", "closer-2", "compensator-1", "outbox-1", "outbox-2"}
	r.start(parts...)
	replace := func(program string) {
		r.program = program
		for _, part := range parts {
			n := r.process(part).Exits()
			expect.That(t, n <= 0, "%s ended %d times by itself", part, n)
			expect.NoError(t, r.process(part).End(syscall.SIGTERM, waitLimit))
			r.start(part)
			r.created(min(len(r.shop.Created())+20, upgradeOrders)) // orders pass between two replacements
		}
	}
	r.store.Migrations = storetest.WithSteps(map[string]string{ // that the earlier program does not know
		"mysql/9001.sql": notes, "postgres/9001.sql": notes,
	})
	r.loadWith(scenario.Spec{Seed: 30, Orders: upgradeOrders, Over: 25 * time.Second, Categories: categories}, func() {
		r.created(70)
		r.program = current
		r.must("migrate")
		must.Do(t, r.store.Migrate(t.Context()))
		r.must("topics", "apply")
		replace(current)
		r.until("doctor finds nothing", func() bool { _, code := r.cli("doctor"); return code == 0 })
		replace(old)
	})
	r.settle()
	r.drain()
	must.Do(t, r.store.Migrated(t.Context()))
	v := r.check()
	expect.That(t, v.ByPath["pipeline"] != 0 && v.Paid != 0, "%d paid, closed by path %v: the history is not whole", v.Paid, v.ByPath)
}

// buildCommit builds the program of a commit of this repository, and returns its path. A clone without the commit skips the test.
func buildCommit(t *testing.T, commit string) string {
	t.Helper()
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", args...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Skipf("this clone has no commit %s, such as a shallow one: git fetch --unshallow (%s)", commit, out)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	if out, err := git("worktree", "add", "--detach", tree, commit); err != nil {
		t.Fatalf("git worktree add: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		out, err := git("worktree", "remove", "--force", tree)
		expect.That(t, err == nil, "git worktree remove: %v\n%s", err, out)
	})
	path := filepath.Join(t.TempDir(), "orderclose")
	build := exec.Command("go", "build", "-o", path, "./cmd/orderclose")
	build.Dir = tree
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build of %s: %v\n%s", commit, err, out)
	}
	return path
}
