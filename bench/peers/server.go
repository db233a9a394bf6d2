package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a server on the loopback. The scripts in deploy/native start and stop it.
type server struct {
	kind      string
	arguments []string

	script string
	dir    string
	port   int
}

// errNotInstalled means that a server cannot be installed on this machine.
var errNotInstalled = errors.New("cannot be installed")

// startServers installs and starts servers with empty folders below dir. stop must be called
// also after an error.
func startServers(ctx context.Context, scripts, dir string, wanted []server) (started []*server, err error) {
	for _, w := range wanted {
		s := &server{kind: w.kind, arguments: w.arguments, script: filepath.Join(scripts, w.kind+".sh"), dir: filepath.Join(dir, w.kind)}
		if err := script(ctx, filepath.Join(scripts, "install.sh"), s.kind); err != nil {
			return started, fmt.Errorf("%s %w: %w", s.kind, errNotInstalled, err)
		}
		if s.port, err = freePort(); err != nil {
			return started, err
		}
		started = append(started, s)
		if err := s.start(ctx); err != nil {
			return started, err
		}
	}
	return started, nil
}

// restart starts the servers that do not run, because a crash could not be undone.
func restart(ctx context.Context, servers []*server) error {
	for _, s := range servers {
		if pid, err := s.pid(); err == nil && alive(pid) {
			continue
		}
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func stopServers(servers []*server) {
	for _, s := range servers {
		if err := script(context.Background(), s.script, "stop", s.dir); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
		}
		os.RemoveAll(s.dir)
	}
}

// start starts the server, also again, with its data. It returns when the server is ready.
func (s *server) start(ctx context.Context) error {
	return script(ctx, s.script, append([]string{"start", s.dir, strconv.Itoa(s.port)}, s.arguments...)...)
}

// kill ends the server and its children by SIGKILL.
func (s *server) kill() error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	tree := processTree(pid)
	for _, p := range tree {
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill %s, process %d: %w", s.kind, p, err)
		}
	}
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if !alive(pid) {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s still runs after SIGKILL", s.kind)
		}
	}
}

func (s *server) pid() (int, error) { return pidIn(s.dir) }

// pids returns the main processes of the server: its own, and that of its name server.
func (s *server) pids() (pids []int) {
	for _, dir := range []string{s.dir, filepath.Join(s.dir, "names")} {
		if pid, err := pidIn(dir); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func pidIn(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// addresses returns the address of each server by its kind. RocketMQ's clients ask its name
// server, "rocketmq-names".
func addresses(servers []*server) map[string]string {
	all := map[string]string{}
	for _, s := range servers {
		all[s.kind] = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
		if port, err := os.ReadFile(filepath.Join(s.dir, "names", "port")); err == nil {
			all[s.kind+"-names"] = net.JoinHostPort("127.0.0.1", strings.TrimSpace(string(port)))
		}
	}
	return all
}

// script runs a script of deploy/native. The first line of an error says why; the others are what it
// has printed.
func script(ctx context.Context, path string, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, arguments...)
	// On a busy machine a broker may take minutes to start.
	cmd.Env = append(os.Environ(), "ORDERCLOSE_SERVERS=native", "ORDERCLOSE_START_SECONDS=180")
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		name := filepath.Base(path)
		return fmt.Errorf("%s %s: %w: %s\n%s", name, arguments[0], err, complaint(name, printed.String()), printed.String())
	}
	return nil
}

// complaint returns the first line that a program has printed after its own name, without notes of
// installations.
func complaint(name, printed string) string {
	for line := range strings.Lines(printed) {
		if text, own := strings.CutPrefix(line, name+": "); own && !strings.HasPrefix(text, "installing") && !strings.HasPrefix(text, "fetching") {
			text, _, _ = strings.Cut(text, "; errors in ") // a temporary folder
			return strings.TrimSpace(text)
		}
	}
	return "it says nothing"
}

// freePort returns a port below those that the kernel gives to connections, so that a server
// that is started again finds it free.
func freePort() (int, error) {
	for range 100 {
		port := 10240 + rand.IntN(22000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 10240 and 32240")
}
