package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

// script puts a script into the folder deploy/native of a new working folder.
func script(t *testing.T, name, text string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "deploy", "native", name)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	t.Chdir(dir)
}

func TestServer_SaysWhyItDoesNotStartInTheFirstLine(t *testing.T) {
	script(t, "redis.sh", "echo 'redis.sh: installing redis'\necho noise\necho 'redis.sh: no server on port 1; errors in /tmp/x/log, and its end:' >&2\nexit 1\n")
	s, err := New("redis", t.TempDir())
	must.Do(t, err)
	err = StartAll(t.Context(), s)
	if err == nil || !strings.HasPrefix(err.Error(), "redis.sh start: exit status 1: no server on port 1\n") || !strings.Contains(err.Error(), "noise") {
		t.Errorf("got %v", err)
	}
}

// The file pid may have the number of another process.
func TestServer_KillsOnlyAProcessInItsFolder(t *testing.T) {
	script(t, "redis.sh", "cd $2\n[ $1 = stop ] || { sh -c 'echo $$ >pid; exec sleep 60' >/dev/null 2>&1 & while [ ! -s pid ]; do sleep 0.01; done; }\n")
	s := must.Get(New("redis", filepath.Join(t.TempDir(), "redis")))(t)
	must.Do(t, s.Start(t.Context()))
	pid := s.PID()
	if !process.Alive(pid) || s.Restart(t.Context()) != nil || s.PID() != pid {
		t.Errorf("process %d, then %d", pid, s.PID())
	}
	if err := s.Kill(); err != nil || process.Alive(pid) || s.PID() != 0 {
		t.Errorf("%v; process %d", err, s.PID())
	}
	other := exec.Command("sleep", "60")
	must.Do(t, other.Start())
	defer func() { other.Process.Kill(); other.Wait() }()
	must.Do(t, os.WriteFile(filepath.Join(s.Dir, "pid"), fmt.Append(nil, other.Process.Pid), 0o600))
	if err := s.Kill(); err != nil || s.Signal(0) == nil || !process.Alive(other.Process.Pid) {
		t.Errorf("%v; the other process runs: %v", err, process.Alive(other.Process.Pid))
	}
}

func TestFreePort_IsNeverTheSameTwice(t *testing.T) {
	seen := map[string]bool{}
	for range 300 {
		port, err := FreePort()
		must.That(t, err == nil && !seen[port], "port %s again, or %v", port, err)
		seen[port] = true
	}
}
