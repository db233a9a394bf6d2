package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/room"
	"github.com/orderclose/orderclose/rooms"
)

// unit returns the values of each key of a systemd unit, in order.
func unit(t *testing.T, name string) map[string][]string {
	t.Helper()
	text := must.Get(os.ReadFile(name))(t)
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
	for _, r := range append(pipeline.AllRoles(), pipeline.Console) {
		roles = append(roles, string(r))
	}
	for _, r := range rooms.All() {
		roles = append(roles, room.Names(r.Roles)...)
	}
	for name, instances := range map[string][]string{"orderclose@.service": roles, "orderclose-setup.service": {""}} {
		u := unit(t, name)
		if !slices.Equal(u["LoadCredential"], []string{"secret:/etc/orderclose/secrets"}) || u["EnvironmentFile"][0] != "/etc/orderclose/environment" {
			t.Errorf("%s reads secrets from %v, and variables from %v", name, u["LoadCredential"], u["EnvironmentFile"])
		}
		files := map[string]bool{environ.EnvBrokers: true} // in the environment file
		for _, variable := range room.Variables(rooms.All()) {
			files[variable] = true
		}
		for _, e := range u["Environment"] {
			variable, file, _ := strings.Cut(e, "=")
			if e == environ.EnvInstance+"=%H-%i" && name == "orderclose@.service" { // host and role: no other process has the same
				continue
			}
			expect.That(t, known[variable] && strings.HasPrefix(file, "%d/secret_"), "%s sets %s", name, e)
			files[strings.TrimSuffix(variable, "_FILE")] = true
		}
		for _, instance := range instances {
			for _, line := range u["ExecStart"] {
				args := strings.Fields(strings.ReplaceAll(line, "%i", instance))
				expect.Equal(t, args[0], "/usr/local/bin/orderclose", "%s starts", name)
				for _, needed := range requiredVariables(t, "../../topics.yaml", args[1:]) {
					expect.That(t, files[needed], "%s: %v needs %s", name, args, needed)
				}
			}
		}
	}
	u := unit(t, "orderclose@.service")
	expect.That(t, slices.Equal(u["Restart"], []string{"always"}) && slices.Equal(u["StartLimitIntervalSec"], []string{"0"}),
		"it is restarted %v, within %v", u["Restart"], u["StartLimitIntervalSec"])
	if code := fmt.Sprint(int(cli.Fenced)); !slices.Equal(u["RestartPreventExitStatus"], []string{code}) {
		t.Errorf("it is not restarted after %v, want %s: two processes with one instance would end each other for ever", u["RestartPreventExitStatus"], code)
	}
	expect.That(t, slices.Contains(u["Environment"], environ.EnvInstance+"=%H-%i"), "it has no instance")
	stop, err := time.ParseDuration(u["TimeoutStopSec"][0] + "s")
	t.Chdir("..") // stopTimeout reads the code relative to it
	if err != nil || stop <= stopTimeout(t)+time.Second {
		t.Errorf("it is killed after %v (%v), and may need %v and a second to stop", stop, err, stopTimeout(t))
	}
}

// The service of payments runs with what its command needs, which is in a module of its own.
func TestSystemd_PaymentsRunWithWhatTheyNeed(t *testing.T) {
	u := unit(t, "systemd/orderclose-payments.service")
	if want := []string{"/usr/local/bin/orderclose-payments --config /etc/orderclose/payments.yaml"}; !slices.Equal(u["ExecStart"], want) {
		t.Errorf("it starts %v", u["ExecStart"])
	}
	if want := []string{environ.EnvDSN + "_FILE=%d/secret_db_dsn", environ.EnvPaymentSecret + "_FILE=%d/secret_payment"}; !slices.Equal(u["Environment"], want) {
		t.Errorf("its variables are %v", u["Environment"])
	}
	if !slices.Equal(u["LoadCredential"], []string{"secret:/etc/orderclose/payments-secrets"}) || !slices.Equal(u["Restart"], []string{"always"}) ||
		!slices.Equal(u["StartLimitIntervalSec"], []string{"0"}) {
		t.Errorf("it reads secrets from %v, and is restarted %v, within %v", u["LoadCredential"], u["Restart"], u["StartLimitIntervalSec"])
	}
	var code string
	for _, name := range []string{"service.go", "main.go"} {
		text := must.Get(os.ReadFile("../payments/cmd/orderclose-payments/" + name))(t)
		code += string(text)
	}
	for _, want := range []string{"stopWithin     = 5 * time.Second", "needs := []string{environ.EnvDSN, environ.EnvPaymentSecret}",
		`flags.String("config"`} {
		expect.That(t, strings.Contains(code, want), "the command does not say %q any more: adapt the unit, and this test", want)
	}
	expect.That(t, slices.Equal(u["TimeoutStopSec"], []string{"10"}), "it is killed after %v s, and may need 5", u["TimeoutStopSec"])
}

// All units run with the same few rights.
func TestSystemd_UnitsHaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	part, setup, payments := unit(t, "systemd/orderclose@.service"), unit(t, "systemd/orderclose-setup.service"), unit(t, "systemd/orderclose-payments.service")
	for key, want := range map[string]string{
		"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes",
		"CapabilityBoundingSet": "", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "MemoryDenyWriteExecute": "yes", "SystemCallArchitectures": "native",
	} {
		expect.That(t, slices.Equal(part[key], []string{want}), "%s is %q, want %q", key, part[key], want)
	}
	for key, values := range part {
		isRight := strings.HasPrefix(key, "Pr") || strings.HasPrefix(key, "Restrict") || strings.HasPrefix(key, "SystemCall") ||
			strings.HasSuffix(key, "Set") || key == "DynamicUser"
		if isRight && !(slices.Equal(values, setup[key]) && slices.Equal(values, payments[key])) {
			t.Errorf("%s: a part has %q, the set-up %q, and payments %q", key, values, setup[key], payments[key])
		}
	}
}

// systemd-analyze knows every key and value. It is a part of systemd; without it the test is skipped.
func TestSystemd_UnitsPassSystemdAnalyze(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not there")
	}
	dir := t.TempDir()
	for _, name := range []string{"orderclose@.service", "orderclose-setup.service", "orderclose-payments.service"} {
		text := must.Get(os.ReadFile(filepath.Join("systemd", name)))(t)
		// it must exist
		text = []byte(strings.NewReplacer("/usr/local/bin/orderclose-payments", "/bin/true", "/usr/local/bin/orderclose", "/bin/true").Replace(string(text)))
		file := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(file, text, 0o600))
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		expect.That(t, err == nil && len(out) <= 0, "%s: %v\n%s", name, err, out)
	}
}
