//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one process of the pipeline, and its supervisor, which restarts it a second after it
// has ended by itself, as systemd does.
type process struct {
	role    string
	name    string // role and number
	command func() *exec.Cmd
	log     *os.File

	mu      sync.Mutex
	cmd     *exec.Cmd // nil: it does not run
	wanted  bool
	stopped chan struct{} // closed when the supervisor has ended
	exits   atomic.Int32  // how often it ended by itself
}

// restartAfter is the pause before a process that ended by itself is started again.
const restartAfter = time.Second

// start starts the process and its supervisor.
func (p *process) start() {
	p.mu.Lock()
	p.wanted, p.stopped = true, make(chan struct{})
	p.mu.Unlock()
	begun := make(chan struct{})
	go p.supervise(begun)
	<-begun
}

func (p *process) supervise(begun chan struct{}) {
	defer close(p.stopped)
	for {
		p.mu.Lock()
		if !p.wanted {
			p.mu.Unlock()
			return
		}
		cmd := p.command()
		cmd.Stdout, cmd.Stderr = p.log, p.log
		// Not even a killed driver leaves processes behind.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		if err == nil {
			p.cmd = cmd
		}
		p.mu.Unlock()
		if begun != nil {
			close(begun)
			begun = nil
		}
		if err == nil {
			err = cmd.Wait()
		}
		p.mu.Lock()
		p.cmd = nil
		wanted := p.wanted
		p.mu.Unlock()
		if !wanted {
			return
		}
		p.exits.Add(1)
		fmt.Fprintf(p.log, "=== %s ended by itself: %v\n", p.name, err)
		time.Sleep(restartAfter)
	}
}

// signal sends a signal to the process, if it runs.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig)
	}
}

// end ends the process by a signal and returns how long that took.
func (p *process) end(sig syscall.Signal) time.Duration {
	began := time.Now()
	p.mu.Lock()
	p.wanted = false
	stopped := p.stopped
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig)
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // a stopped process ends only when it runs
	}
	p.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
	return time.Since(began)
}

// stopLimit is how long a process may take to end in order.
const stopLimit = 10 * time.Second

// errSlowStop is the error of a process that takes longer than stopLimit and some time to exit.
var errSlowStop = errors.New("did not stop within its limit")

// stopInOrder ends the process by SIGTERM.
func (p *process) stopInOrder() error {
	if took := p.end(syscall.SIGTERM); took > stopLimit+3*time.Second {
		return fmt.Errorf("%s took %v: %w", p.name, took.Round(time.Millisecond), errSlowStop)
	}
	return nil
}
