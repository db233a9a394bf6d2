//go:build unix

package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRun_ASignalToReloadMayComeAtOnce: without a handler the signal would end this process.
func TestRun_ASignalToReloadMayComeAtOnce(t *testing.T) {
	var out, err bytes.Buffer
	asked := false
	code := Main(t.Context(), Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err,
		LookupEnv: func(string) (string, bool) {
			if !asked {
				asked = true
				syscall.Kill(syscall.Getpid(), syscall.SIGHUP)
				time.Sleep(100 * time.Millisecond)
			}
			return "", false
		},
	}, []string{"run", "--config", "nowhere.yaml"})
	if code != int(Usage) || !asked {
		t.Errorf("exit %d, %s", code, err.String())
	}
}
