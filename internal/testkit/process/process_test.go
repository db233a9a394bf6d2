package process

import (
	"context"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

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
