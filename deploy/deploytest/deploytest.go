// Package deploytest has helpers for the tests of the files in deploy.
package deploytest

import (
	"os"
	"os/exec"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Decode decodes a YAML file strictly: a key without a field in into is an error.
func Decode(t *testing.T, name string, into any) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// Tool runs a checker of Prometheus. If it is not installed the test is skipped, or
// fails if REQUIRE_REAL is 1.
func Tool(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("REQUIRE_REAL") == "1" {
			t.Fatalf("%s is not there: run deploy/native/install.sh %[1]s", name)
		}
		t.Skip(name, "is not there")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
}
