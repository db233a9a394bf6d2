// Package process starts programs for tests and benchmarks, and ends them by their process id. A Process can be signalled, killed and started again. It
// ends with the program that has started it, also if that is killed.
//
//	process.go    Process
//	stat.go       what /proc says of processes
//	death_linux.go, death_other.go    on Linux a process does not outlive its parent
//
// The package uses the standard library only, because the modules of dev/bench and deploy use it too.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a program that is started, maybe more than once. Its methods are safe for concurrent use.
type Process struct {
	// Name is for errors.
	Name string
	// Command returns what is started. It is called for each start.
	Command func() *exec.Cmd
	// Output, if set, reads what the program prints on stdout until it has ended.
	Output func(io.Reader)
	// Restart, if not 0, is the pause after which a process that has ended by itself is started again.
	Restart time.Duration

	mu     sync.Mutex
	cmd    *exec.Cmd     // of the last start
	done   chan struct{} // closed when it has ended; err is set by then
	err    error
	wanted bool          // End was not called since Start
	idle   chan struct{} // closed by End during the pause of Restart
	exits  int
}

// errNotRunning is the error of a signal to a process that does not run.
var errNotRunning = errors.New("does not run")

// Start starts the process. The previous one must have ended.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted, p.idle = true, make(chan struct{})
	return p.start()
}

func (p *Process) start() error {
	cmd := p.Command()
	EndWithParent(cmd)
	var out io.Reader
	if p.Output != nil {
		var err error
		if out, err = cmd.StdoutPipe(); err != nil {
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go p.wait(cmd, out, p.done)
	return nil
}

// wait waits for the end of a process, and starts it again if it has ended by itself and Restart is set.
func (p *Process) wait(cmd *exec.Cmd, out io.Reader, done chan struct{}) {
	if out != nil {
		p.Output(out)
	}
	err := cmd.Wait()
	p.mu.Lock()
	p.err = err
	if p.wanted {
		p.exits++
	}
	again, idle := p.wanted && p.Restart > 0, p.idle
	close(done)
	p.mu.Unlock()
	if !again {
		return
	}
	select {
	case <-idle:
		return
	case <-time.After(p.Restart):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted && p.idle == idle {
		if err := p.start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// running returns the process of the last start, or nil if that has ended. The caller holds p.mu.
func (p *Process) running() *os.Process {
	if p.cmd == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	default:
		return p.cmd.Process
	}
}

// PID returns the process id; 0: the process does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if running := p.running(); running != nil {
		return running.Pid
	}
	return 0
}

// Signal sends a signal. It fails if the process does not run.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if running := p.running(); running != nil {
		return running.Signal(s)
	}
	return fmt.Errorf("%s %w", p.Name, errNotRunning)
}

// Kill ends the process by SIGKILL and returns when it has ended. It does nothing if the process does not run.
func (p *Process) Kill() { _ = p.End(syscall.SIGKILL, 0) }

// End ends the process by a signal and returns when it has ended. After limit, if that is not 0, it sends SIGKILL; the error then says so. Otherwise the
// error is that of the process, which has none if its exit code is 0. End does nothing if the process was not started or was ended before.
func (p *Process) End(s syscall.Signal, limit time.Duration) error {
	p.mu.Lock()
	if !p.wanted {
		p.mu.Unlock()
		return nil
	}
	p.wanted = false
	close(p.idle)
	done := p.done
	if running := p.running(); running != nil {
		_ = running.Signal(s)
		_ = running.Signal(syscall.SIGCONT) // a frozen process ends only when it runs
	}
	p.mu.Unlock()
	if done == nil { // the start has failed
		return nil
	}
	if limit > 0 {
		select {
		case <-done:
		case <-time.After(limit):
			_ = p.Signal(syscall.SIGKILL)
			<-done
			return fmt.Errorf("%s did not end within %v after %v", p.Name, limit, s)
		}
	}
	<-done
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.Name, p.err)
	}
	return nil
}

// Ended returns an error if the process has ended by itself.
func (p *Process) Ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.running() != nil {
		return nil
	}
	if p.err == nil {
		return fmt.Errorf("%s ended by itself", p.Name)
	}
	return fmt.Errorf("%s ended by itself: %w", p.Name, p.err)
}

// Exits returns how often the process has ended by itself.
func (p *Process) Exits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exits
}

// State returns the state of the process at its end; nil while it runs.
func (p *Process) State() *os.ProcessState {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.running() != nil {
		return nil
	}
	return p.cmd.ProcessState
}

// Await calls ready until that has no error, and returns nil. It fails when ctx ends, with the last
// error of ready, or when one of the processes has ended by itself.
func Await(ctx context.Context, ready func(context.Context) error, by ...*Process) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		for _, p := range by {
			if ended := p.Ended(); ended != nil {
				return ended
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// KillTree ends a process and its child processes by SIGKILL, and returns when the process has ended. It does nothing for 0.
func KillTree(ctx context.Context, pid int) error {
	if pid == 0 {
		return nil
	}
	for _, p := range Tree(pid) {
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d: %w", p, err)
		}
	}
	return Await(ctx, func(context.Context) error {
		if Alive(pid) {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}
