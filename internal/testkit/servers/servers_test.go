package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

// The file pid may have the number of another process.
func TestServer_KillsOnlyAProcessInItsFolder(t *testing.T) {
	const script = "#!/bin/sh\ncd $2\n[ $1 = stop ] || { sh -c 'echo $$ >pid; exec sleep 60' >/dev/null 2>&1 & while [ ! -s pid ]; do sleep 0.01; done; }\n"
	t.Chdir(t.TempDir())
	must.Do(t, os.MkdirAll("deploy/native", 0o755))
	must.Do(t, os.WriteFile("deploy/native/redis.sh", []byte(script), 0o755))
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
