package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/pipeline"
)

// unit returns the values of each key of a systemd unit, in order.
func unit(t *testing.T, name string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			keys[key] = append(keys[key], value)
		}
	}
	return keys
}

// Each role, and the set-up, run with the variables that they need: the brokers of the
// administrator, and secrets of the folder that LoadCredential names.
func TestSystemd_UnitsRunWithWhatTheyNeed(t *testing.T) {
	t.Chdir("systemd")
	known := knownVariables(t)
	roles := []string{"all"}
	for _, r := range append(pipeline.AllRoles(), pipeline.Release, pipeline.Console) {
		roles = append(roles, string(r))
	}
	for name, instances := range map[string][]string{"orderclose@.service": roles, "orderclose-setup.service": {""}} {
		u := unit(t, name)
		if !slices.Equal(u["LoadCredential"], []string{"secret:/etc/orderclose/secrets"}) || u["EnvironmentFile"][0] != "/etc/orderclose/environment" {
			t.Errorf("%s reads secrets from %v, and variables from %v", name, u["LoadCredential"], u["EnvironmentFile"])
		}
		files := map[string]bool{config.EnvBrokers: true, config.EnvReleaseURL: true} // in the environment file
		for _, e := range u["Environment"] {
			variable, file, _ := strings.Cut(e, "=")
			if !known[variable] || !strings.HasPrefix(file, "%d/secret_") {
				t.Errorf("%s sets %s", name, e)
			}
			files[strings.TrimSuffix(variable, "_FILE")] = true
		}
		for _, instance := range instances {
			for _, line := range u["ExecStart"] {
				args := strings.Fields(strings.ReplaceAll(line, "%i", instance))
				if args[0] != "/usr/local/bin/orderclose" {
					t.Errorf("%s starts %s", name, args[0])
				}
				for _, needed := range requiredVariables(t, "../../topics.yaml", args[1:]) {
					if !files[needed] {
						t.Errorf("%s: %v needs %s", name, args, needed)
					}
				}
			}
		}
	}
	u := unit(t, "orderclose@.service")
	if !slices.Equal(u["Restart"], []string{"always"}) || !slices.Equal(u["StartLimitIntervalSec"], []string{"0"}) {
		t.Errorf("it is restarted %v, within %v", u["Restart"], u["StartLimitIntervalSec"])
	}
	stop, err := time.ParseDuration(u["TimeoutStopSec"][0] + "s")
	t.Chdir("..") // stopTimeout reads the code relative to it
	if err != nil || stop <= stopTimeout(t)+time.Second {
		t.Errorf("it is killed after %v (%v), and may need %v and a second to stop", stop, err, stopTimeout(t))
	}
}

// Both units run with the same few rights.
func TestSystemd_UnitsHaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	part, setup := unit(t, "systemd/orderclose@.service"), unit(t, "systemd/orderclose-setup.service")
	for key, want := range map[string]string{
		"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes",
		"CapabilityBoundingSet": "", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "MemoryDenyWriteExecute": "yes", "SystemCallArchitectures": "native",
	} {
		if !slices.Equal(part[key], []string{want}) {
			t.Errorf("%s is %q, want %q", key, part[key], want)
		}
	}
	for key, values := range part {
		isRight := strings.HasPrefix(key, "Pr") || strings.HasPrefix(key, "Restrict") || strings.HasPrefix(key, "SystemCall") || strings.HasSuffix(key, "Set") || key == "DynamicUser"
		if isRight && !slices.Equal(values, setup[key]) {
			t.Errorf("%s: a part has %q, and the set-up %q", key, values, setup[key])
		}
	}
}

// systemd-analyze knows every key and value. It is a part of systemd; without it the test is
// skipped.
func TestSystemd_UnitsPassSystemdAnalyze(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not there")
	}
	dir := t.TempDir()
	for _, name := range []string{"orderclose@.service", "orderclose-setup.service"} {
		text, err := os.ReadFile(filepath.Join("systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.ReplaceAll(string(text), "/usr/local/bin/orderclose", "/bin/true")) // it must exist
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(analyze, "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
