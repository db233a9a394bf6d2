package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// program is a process that can be killed and started again.
type program struct {
	name    string
	command func() *exec.Cmd
	// output, if set, reads what the process prints, until it has ended.
	output func(io.Reader)

	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when the process has ended; err is set by then
	err   error
}

// start starts the process. It ends by itself if this process dies, because its standard input
// is then closed, if it reads it; otherwise stop must be called.
func (p *program) start() error {
	cmd := p.command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var out io.Reader
	if p.output != nil {
		if out, err = cmd.StdoutPipe(); err != nil {
			return err
		}
	}
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.cmd, p.stdin, p.done = cmd, stdin, done
	go func() {
		defer close(done)
		if p.output != nil {
			p.output(out)
		}
		p.err = cmd.Wait()
	}()
	return nil
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// kill ends the process by SIGKILL.
func (p *program) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// stop ends the process by SIGTERM, and after 15 s by SIGKILL.
func (p *program) stop() {
	if p == nil || p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintf(os.Stderr, "peers: stop %s: %v\n", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		p.cmd.Process.Kill()
		<-p.done
	}
	p.stdin.Close()
}

// ended says whether the process has ended by itself, and how.
func (p *program) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended by itself: %w", p.name, p.err)
	default:
		return nil
	}
}
