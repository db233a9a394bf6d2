package process

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func sleeper() *exec.Cmd { return exec.Command("sleep", "60") }

func TestProcess_StartsAgainAfterKillAndEndsByItsSignal(t *testing.T) {
	p := &Process{Name: "sleep", Command: sleeper}
	if err := p.Signal(syscall.SIGHUP); !errors.Is(err, errNotRunning) || p.PID() != 0 || p.End(syscall.SIGTERM, 0) != nil {
		t.Errorf("before the start: %v, process %d", err, p.PID())
	}
	for range 2 {
		must.Do(t, p.Start())
		pid := p.PID()
		if !Alive(pid) || p.Ended() != nil {
			t.Errorf("process %d does not run: %v", pid, p.Ended())
		}
		p.Kill()
		if Alive(pid) || p.PID() != 0 || p.Exits() != 0 || p.State() == nil {
			t.Errorf("process %d after SIGKILL: %d, %d exits, state %v", pid, p.PID(), p.Exits(), p.State())
		}
	}
	must.Do(t, p.Start())
	must.Do(t, p.Signal(syscall.SIGSTOP))
	if err := p.End(syscall.SIGTERM, time.Minute); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("a frozen process that is ended: %v", err)
	}
}

func TestProcess_IsKilledAfterTheLimit(t *testing.T) {
	printed := make(chan struct{})
	p := &Process{Name: "deaf", Command: func() *exec.Cmd { return exec.Command("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.01; done") },
		Output: func(out io.Reader) { io.ReadFull(out, make([]byte, 1)); close(printed); io.Copy(io.Discard, out) }}
	must.Do(t, p.Start())
	<-printed
	err := p.End(syscall.SIGTERM, 50*time.Millisecond)
	expect.That(t, err != nil && strings.Contains(err.Error(), "did not end within"), "got %v", err)
}

func TestProcess_SaysThatItEndedByItselfAndIsStartedAgain(t *testing.T) {
	p := &Process{Name: "false", Command: func() *exec.Cmd { return exec.Command("false") }}
	must.Do(t, p.Start())
	err := Await(t.Context(), func(context.Context) error { return errNotRunning }, p)
	if err == nil || !strings.Contains(err.Error(), "false ended by itself: exit status 1") || p.Exits() != 1 {
		t.Errorf("got %v, %d exits", err, p.Exits())
	}
	again := &Process{Name: "false", Restart: time.Millisecond, Command: p.Command}
	must.Do(t, again.Start())
	if err := Await(t.Context(), func(context.Context) error {
		if again.Exits() < 3 {
			return errNotRunning
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	again.Kill()
	if exits := again.Exits(); exits < 3 || again.PID() != 0 {
		t.Errorf("%d exits, process %d", exits, again.PID())
	}
}

// Processes that a server has started count with it.
func TestTree_HasThisProcess(t *testing.T) {
	tree := Tree(os.Getpid())
	used, err := UsedBy(os.Getpid())
	expect.That(t, len(tree) != 0 && tree[0] == os.Getpid() && Alive(os.Getpid()) && err == nil && used.Peak >= 1<<20,
		"tree %v, used %+v, %v", tree, used, err)
}

func TestParseStat_ReadsTheTimesAfterTheName(t *testing.T) {
	s, err := parseStat([]byte("4711 (a ) b) S 1 4711 4711 0 -1 4194560 1 2 3 4 150 25 7 1 20 0 9 0 100 200"))
	expect.That(t, err == nil && s == (Stat{Parent: 1, State: 'S', CPU: 1750 * time.Millisecond, Waited: 80 * time.Millisecond}), "%+v, %v", s, err)
	if _, err := parseStat([]byte("4711 (short) S 1")); err == nil {
		t.Error("a short line is accepted")
	}
}
