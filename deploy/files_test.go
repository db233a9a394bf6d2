// Package deploy contains what runs the pipeline in production: the alert rules for Prometheus with their tests (alerts), everything to run it in
// containers on one machine (compose), on Kubernetes (helm) and as systemd units (systemd), and scripts that start real servers for tests (native).
// Its tests check what can be checked without a container engine. The dashboards (grafana), more tests of the objects of Kubernetes (kubetest) and those
// of the web console (consoletest) are modules of their own.
package deploy

import (
	"os"
	"os/exec"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/testkit/must"
)

// decode decodes a YAML file strictly: a key without a field in into is an error.
func decode(t *testing.T, name string, into any) {
	t.Helper()
	f := must.Get(os.Open(name))(t)
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	err := d.Decode(into)
	must.That(t, err == nil, "%s: %v", name, err)
}

// tool runs a checker of Prometheus. If it is not installed the test is skipped, or fails if REQUIRE_REAL is 1.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		must.That(t, os.Getenv("REQUIRE_REAL") != "1", "%s is not there: run deploy/native/install.sh %[1]s", name)
		t.Skip(name, "is not there")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
}
