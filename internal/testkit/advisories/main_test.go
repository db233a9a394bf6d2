package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestRead_FindsAffectedVersions(t *testing.T) {
	one := `{"id": "GO-1", "affected": [{"package": {"ecosystem": "Go", "name": "example.org/m"}, "ranges": [{"type": "SEMVER", "events": [` +
		`{"introduced": "0"}, {"fixed": "1.2.0"}, {"introduced": "1.5.0"}, {"fixed": "1.5.2"}]}]}]}`
	other := `{"id": "PY-1", "affected": [{"package": {"ecosystem": "PyPI", "name": "example.org/m"}}]}`
	for _, text := range []string{one + "\n" + other, "[" + one + "," + other + "]"} {
		file := filepath.Join(t.TempDir(), "osv.json")
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		all := must.Get(read(file))(t)["example.org/m"]
		expect.Equal(t, len(all), 1, "the advisories are %v", all)
		for version, want := range map[string]bool{"v1.1.9": true, "v1.2.0": false, "v1.5.0": true, "v1.5.1": true, "v1.5.2": false, "v1.6.0": false} {
			expect.Equal(t, all[0].affects("example.org/m", version), want, "%s", version)
		}
		expect.That(t, !all[0].affects("example.org/other", "v1.0.0"), "another module is affected")
	}
	empty := filepath.Join(t.TempDir(), "empty.json")
	must.Do(t, os.WriteFile(empty, []byte("{}"), 0o600))
	_, err := read(empty)
	expect.Says(t, err, "no advisory for Go", "an empty file")
}
