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

// process is a running side. stop must be called once.
type process struct {
	job   job
	cmd   *exec.Cmd
	stdin io.Closer
	out   bytes.Buffer
	done  chan struct{} // closed when it has ended; err is set by then
	err   error
}

// usage is the resources that a side has used.
type usage struct {
	cpu  time.Duration
	peak int64 // peak of resident memory, in bytes
}

// start runs the job in another process of this program. The variable PROFILE names a
// folder for a CPU profile of each.
func (p *workspace) start(j job) (*process, error) {
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

// stop stops the process, after 15 s by force, and returns the resources that it has
// used.
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

// pause suspends the process; resume continues it.
func (s *process) pause() error  { return s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *process) resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }
