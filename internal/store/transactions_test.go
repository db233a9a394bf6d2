package store_test

import (
	"os"
	osexec "os/exec"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// Transactions of libraries that this module does not have are lent too: pgx, sqlx and ent. Their tests are in a module of their own.
func TestTransactions_OfOtherLibrariesAreLent(t *testing.T) {
	for _, variable := range dsnVariables {
		switch {
		case os.Getenv(variable) != "":
		case os.Getenv("REQUIRE_REAL") == "1":
			t.Fatalf("%s names no server, and REQUIRE_REAL=1 wants one", variable)
		default:
			t.Skipf("%s names no server", variable)
		}
	}
	t.Parallel()
	cmd := osexec.Command("go", "test", "-count=1", "-vet=off", ".")
	cmd.Dir = "../testkit/transactions"
	out, err := cmd.CombinedOutput()
	expect.That(t, err == nil, "%v\n%s", err, out)
}
