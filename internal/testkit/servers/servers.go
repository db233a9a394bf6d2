// Package servers starts Kafka, MariaDB, MySQL, PostgreSQL, Redis and others on the loopback, by the scripts of deploy/native. Each server has a folder
// of its own, in a temporary folder of the caller, and is stopped by its process id.
//
//	servers.go  Server: start, stop, kill
//	brokers.go  three brokers
//	ports.go    free ports
//
// The package uses the standard library only, because the module of dev/bench/peers uses it too.
package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// Server is a server that can be stopped or killed and started again, with its data. The fields may be changed before Start.
type Server struct {
	Kind string   // the name of its script without .sh, such as kafka
	Dir  string   // its folder, an absolute path without symbolic links
	Port string   // on 127.0.0.1
	Args []string // of the script, after the port
	Env  []string // of the script, NAME=value
}

// New returns a server in a folder that may not exist yet, on a free port. It does not start it.
func New(kind, dir string, args ...string) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	return &Server{Kind: kind, Dir: dir, Port: port, Args: args}, err
}

// Addr returns the address of the server, host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + s.Port }

// Start starts the server and returns when it answers.
func (s *Server) Start(ctx context.Context) error {
	return s.script(ctx, append([]string{"start", s.Dir, s.Port}, s.Args...)...)
}

// Stop stops the server by SIGTERM, and after 15 s by SIGKILL. It does nothing if the server does not run.
func (s *Server) Stop(ctx context.Context) error { return s.script(ctx, "stop", s.Dir) }

// Restart starts the server if it does not run.
func (s *Server) Restart(ctx context.Context) error {
	if s.PID() != 0 {
		return nil
	}
	return s.Start(ctx)
}

// Kill ends the server and its child processes by SIGKILL, and returns when they have ended. It does nothing if the server does not run.
func (s *Server) Kill() error {
	if err := process.KillTree(context.Background(), s.PID()); err != nil {
		return fmt.Errorf("kill %s: %w", s.Kind, err)
	}
	return nil
}

// Signal sends a signal to the server.
func (s *Server) Signal(sig syscall.Signal) error {
	pid := s.PID()
	if pid == 0 {
		return fmt.Errorf("%s does not run", s.Dir)
	}
	return syscall.Kill(pid, sig)
}

// PID returns the process id of the server; 0: it does not run.
func (s *Server) PID() int { return pidIn(s.Dir) }

// PIDs returns the process ids of the server, and of its name server if it has one.
func (s *Server) PIDs() (pids []int) {
	for _, dir := range []string{s.Dir, filepath.Join(s.Dir, "names")} {
		if pid := pidIn(dir); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pidIn returns the process id of the server in a folder; 0: none runs there. The file may have the
// id of a server that has ended, which may be that of another process now.
func pidIn(dir string) int {
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || cwd != dir && !strings.HasPrefix(cwd, dir+"/") {
		return 0 // a process that has ended has no folder
	}
	return pid
}

// StartAll starts servers at once. On a busy machine a start may take too long, so it tries each twice. If one does not start, all are killed.
func StartAll(ctx context.Context, all ...*Server) error {
	errs := make([]error, len(all))
	var starts sync.WaitGroup
	for i, s := range all {
		starts.Go(func() {
			if errs[i] = s.Start(ctx); errs[i] != nil && ctx.Err() == nil {
				errs[i] = s.Start(ctx)
			}
		})
	}
	starts.Wait()
	err := errors.Join(errs...)
	if err != nil {
		err = errors.Join(err, KillAll(all...))
	}
	return err
}

// KillAll kills servers. It is the way to stop several brokers: stopped in order, the last ones would wait for a majority.
func KillAll(all ...*Server) error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Kill())
	}
	return errors.Join(errs...)
}

// Script returns the path of a script of deploy/native. It looks for that folder in the working folder and those above it.
func Script(name string) (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		path := filepath.Join(dir, "deploy", "native", name)
		if _, missing := os.Stat(path); missing == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no folder above the working folder has deploy/native/%s", name)
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// startLimit is how long a server may take to start. On idle cores a broker needs five seconds.
const startLimit = 4 * time.Minute

func (s *Server) script(ctx context.Context, args ...string) error {
	return Run(ctx, s.Kind+".sh", s.Env, args...)
}

// Install installs a kind of server.
func Install(ctx context.Context, kind string) error { return Run(ctx, "install.sh", nil, kind) }

// Run runs a script of deploy/native, for servers that are no containers unless env or the environment
// says otherwise. The first line of an error says why; the others are what the script has printed.
func Run(ctx context.Context, script string, env []string, args ...string) error {
	path, err := Script(script)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(append(os.Environ(), fmt.Sprintf("ORDERCLOSE_START_SECONDS=%.0f", startLimit.Seconds())), env...)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%s %s: %w: %s\n%s", script, args[0], err, Complaint(script, printed.String()), printed.String())
	}
	return nil
}

// Complaint returns the first line that a program has printed after its own name, without notes of installations.
func Complaint(name, printed string) string {
	for line := range strings.Lines(printed) {
		if text, own := strings.CutPrefix(line, name+": "); own && !strings.HasPrefix(text, "installing") && !strings.HasPrefix(text, "fetching") {
			text, _, _ = strings.Cut(text, "; errors in ") // a temporary folder
			return strings.TrimSpace(text)
		}
	}
	return "it says nothing"
}
