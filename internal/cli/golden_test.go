package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden compares the output of table with testdata/NAME.txt. Run the tests with
// UPDATE_GOLDEN=1 to write the files, and read the diff before you commit it.
func golden(t *testing.T, name string, table func(w io.Writer)) {
	t.Helper()
	var out strings.Builder
	c := &common{output: "table", env: Env{Stdout: &out}}
	if err := c.print(nil, table); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
