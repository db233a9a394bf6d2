package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a side that runs. It is stopped by stop, once.
type process struct {
	job   job
	cmd   *exec.Cmd
	stdin io.Closer
	out   bytes.Buffer
	done  chan struct{} // closed when it has ended; err is set by then
	err   error
}

// usage is what a side has used.
type usage struct {
	cpu  time.Duration
	peak int64 // bytes resident
}

// start runs the job in a process of this same program. PROFILE names a folder
// for a CPU profile of each.
func (p *place) start(j job) (*process, error) {
	j.Brokers = p.brokers
	if dir := os.Getenv("PROFILE"); dir != "" {
		j.Profile = filepath.Join(dir, p.name(j.Side)[len(p.prefix):]+".prof")
	}
	encoded, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &process{job: j, cmd: exec.Command(self, "side", string(encoded)), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, os.Stderr
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	return s, nil
}

func (s *process) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// stop ends the process in order, or after 15 s by force, and returns what it
// has used.
func (s *process) stop() (usage, error) {
	s.stdin.Close()
	select {
	case <-s.done:
	case <-time.After(15 * time.Second):
		s.cmd.Process.Kill()
		<-s.done
	}
	if s.err != nil {
		return usage{}, fmt.Errorf("%s: %w", s.job.Side, s.err)
	}
	var o outcome
	if err := json.Unmarshal(s.out.Bytes(), &o); err != nil {
		return usage{}, fmt.Errorf("%s printed %q: %w", s.job.Side, s.out.String(), err)
	}
	state := s.cmd.ProcessState
	return usage{state.UserTime() + state.SystemTime(), o.PeakBytes}, nil
}

// pause stops the process where it stands; resume lets it go on.
func (s *process) pause() error  { return s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *process) resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }
