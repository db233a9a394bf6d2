//go:build unix

package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestRun_ASignalToReloadMayComeAtOnce: without a handler the signal would end this process.
func TestRun_ASignalToReloadMayComeAtOnce(t *testing.T) {
	var out, err bytes.Buffer
	asked := false
	code := Main(t.Context(), Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err,
		LookupEnv: func(name string) (string, bool) {
			if !asked && name != environ.EnvLogFormat && name != config.EnvConfig { // which are read before the command begins
				asked = true
				syscall.Kill(syscall.Getpid(), syscall.SIGHUP)
				time.Sleep(100 * time.Millisecond)
			}
			return "", false
		},
	}, []string{"run", "--config", "nowhere.yaml"})
	expect.That(t, code == int(Usage) && asked, "exit %d, %s", code, err.String())
}

func TestRun_WarnsOfAnOpenSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "redis-url")
	must.Do(t, os.WriteFile(file, []byte("redis://127.0.0.1:1\n"), 0o600))
	must.Do(t, os.Chmod(file, 0o644))
	var log bytes.Buffer
	env := map[string]string{environ.EnvBrokers: "127.0.0.1:1", environ.EnvListen: "127.0.0.1:0"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Main(ctx, Env{Stdin: strings.NewReader(""), Stdout: &log, Stderr: &log,
		LookupEnv: func(name string) (string, bool) { value, set := env[name]; return value, set },
		Environ:   func() []string { return []string{environ.EnvRedis + "_FILE=" + file} },
	}, []string{"run", "relay", "--config", topicsYAML(t, "buckets: [10s]\n")})
	want := environ.EnvRedis + "_FILE names a file of mode 0644"
	expect.That(t, strings.Contains(log.String(), want), "no %q in %s", want, log.String())
}

func TestRun_EachLogLineNamesTheProcess(t *testing.T) {
	var log bytes.Buffer
	env := map[string]string{environ.EnvBrokers: "127.0.0.1:1", environ.EnvListen: "127.0.0.1:0"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code := Main(ctx, Env{Stdin: strings.NewReader(""), Stdout: &log, Stderr: &log,
		LookupEnv: func(name string) (string, bool) { value, set := env[name]; return value, set },
	}, []string{"run", "relay", "--config", topicsYAML(t, "buckets: [10s]\n")})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	named := regexp.MustCompile(` process=relay@\S+:\d+:0( |$)`)
	for _, line := range lines {
		expect.That(t, code == 0 && named.MatchString(line), "exit %d, %s", code, line)
	}
}
