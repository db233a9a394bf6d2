package deploy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/cli"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
)

// units are the units of systemd: that of a part, of the set-up, and of payments.
var units = []string{"orderclose@.service", "orderclose-setup.service", "orderclose-payments.service"}

// unit returns the values of each key of a systemd unit, in order.
func unit(t *testing.T, name string) map[string][]string {
	t.Helper()
	text := must.Get(os.ReadFile("systemd/" + name))(t)
	keys := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			keys[key] = append(keys[key], value)
		}
	}
	return keys
}

var notSet = regexp.MustCompile(`(ORDERCLOSE_[A-Z_]+) is not set`)

// requiredVariables runs a command line without any variable, and returns those that it asks for. It fails if the command line is wrong in another way.
func requiredVariables(t *testing.T, args []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var errs bytes.Buffer
	none := func(string) (string, bool) { return "", false }
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/etc/orderclose/topics.yaml", "../topics.yaml")
	}
	code := cli.Main(ctx, cli.Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &errs, LookupEnv: none}, args)
	var names []string
	for _, m := range notSet.FindAllStringSubmatch(errs.String(), -1) {
		names = append(names, m[1])
	}
	expect.That(t, code == int(cli.Usage) && len(names) != 0, "orderclose %v exits with %d: %s", args, code, errs.String())
	return names
}

// Each unit gets secrets as files of the folder that LoadCredential names. The set-up, and each role with the brokers of the administrator, run with
// these variables; payments, a module of its own, needs a database and a secret.
func TestSystemd_UnitsRunWithWhatTheyNeed(t *testing.T) {
	known, roles := knownVariables(t), []string{"all"}
	for _, r := range append(pipeline.AllRoles(), pipeline.Console, pipeline.Webhook) {
		roles = append(roles, string(r))
	}
	folders := []string{"secrets", "secrets", "payments-secrets"}
	for i, instances := range [][]string{roles, {""}, nil} {
		name, u := units[i], unit(t, units[i])
		expect.Same(t, u["LoadCredential"], []string{"secret:/etc/orderclose/" + folders[i]}, "the secrets of %s", name)
		given := map[string]bool{environ.EnvBrokers: true, environ.EnvWebhookSecret: true} // in the environment file
		for _, e := range u["Environment"] {
			variable, file, _ := strings.Cut(e, "=")
			if variable != environ.EnvInstance {
				expect.That(t, known[variable] && strings.HasPrefix(file, "%d/secret_"), "%s sets %s", name, e)
			}
			given[strings.TrimSuffix(variable, "_FILE")] = true
		}
		for _, instance := range instances {
			for _, line := range u["ExecStart"] {
				args := strings.Fields(strings.ReplaceAll(line, "%i", instance))
				expect.Equal(t, args[0], "/usr/local/bin/orderclose", "%s starts", name)
				for _, needed := range requiredVariables(t, args[1:]) {
					expect.That(t, given[needed], "%s: %v needs %s", name, args, needed)
				}
			}
		}
		expect.That(t, instances != nil || given[environ.EnvDSN] && given[environ.EnvPaymentSecret], "%s gets %v", name, given)
	}
	// Host and role: no other process has the same.
	expect.That(t, slices.Contains(unit(t, units[0])["Environment"], environ.EnvInstance+"=%H-%i"), "a part has no instance")
	expect.Same(t, unit(t, units[2])["ExecStart"], []string{"/usr/local/bin/orderclose-payments --config /etc/orderclose/payments.yaml"}, "payments starts")
}

// Servers may be down for hours. Two processes with one instance would end each other for ever.
func TestSystemd_PartsAreRestartedAndStopInTime(t *testing.T) {
	for name, code := range map[string]string{
		units[0]: "../internal/cli/run.go:const stopTimeout", units[2]: "../payments/cmd/orderclose-payments/service.go:stopWithin",
	} {
		u := unit(t, name)
		expect.That(t, slices.Equal(u["Restart"], []string{"always"}) && slices.Equal(u["StartLimitIntervalSec"], []string{"0"}),
			"%s is restarted %v, within %v", name, u["Restart"], u["StartLimitIntervalSec"])
		file, constant, _ := strings.Cut(code, ":")
		m := regexp.MustCompile(constant + ` += (\d+) \* time\.Second`).FindSubmatch(must.Get(os.ReadFile(file))(t))
		must.That(t, m != nil, "%s has no %s", file, constant)
		needs, killed := must.Get(time.ParseDuration(string(m[1])+"s"))(t), must.Get(time.ParseDuration(u["TimeoutStopSec"][0]+"s"))(t)
		expect.That(t, killed > needs+time.Second, "%s is killed after %v, and may need %v and a second to stop", name, killed, needs)
	}
	expect.Same(t, unit(t, units[0])["RestartPreventExitStatus"], []string{fmt.Sprint(int(cli.Fenced))}, "no restart after")
}

// All units run with the same few rights.
func TestSystemd_UnitsHaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	part, setup, payments := unit(t, units[0]), unit(t, units[1]), unit(t, units[2])
	for key, want := range map[string]string{
		"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes",
		"CapabilityBoundingSet": "", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "MemoryDenyWriteExecute": "yes", "SystemCallArchitectures": "native",
	} {
		expect.That(t, slices.Equal(part[key], []string{want}), "%s is %q, want %q", key, part[key], want)
	}
	for key, values := range part {
		isRight := strings.HasPrefix(key, "Pr") || strings.HasPrefix(key, "Restrict") || strings.HasPrefix(key, "SystemCall") ||
			strings.HasSuffix(key, "Set") || key == "DynamicUser"
		expect.That(t, !isRight || slices.Equal(values, setup[key]) && slices.Equal(values, payments[key]),
			"%s: a part has %q, the set-up %q, and payments %q", key, values, setup[key], payments[key])
	}
}

// systemd-analyze knows every key and value. It is a part of systemd; without it the test is skipped.
func TestSystemd_UnitsPassSystemdAnalyze(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not there")
	}
	dir := t.TempDir()
	for _, name := range units {
		text := must.Get(os.ReadFile(filepath.Join("systemd", name)))(t)
		// it must exist
		text = []byte(strings.NewReplacer("/usr/local/bin/orderclose-payments", "/bin/true", "/usr/local/bin/orderclose", "/bin/true").Replace(string(text)))
		file := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(file, text, 0o600))
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		expect.That(t, err == nil && len(out) <= 0, "%s: %v\n%s", name, err, out)
	}
}
