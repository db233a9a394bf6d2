package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// newWorker returns the process that consumes. It calls receive for each receipt.
func newWorker(r run, receive func(number int, at int64)) (*process.Process, error) {
	encoded, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	worker, err := self("worker", string(encoded))
	if err != nil {
		return nil, err
	}
	worker.Output = func(out io.Reader) {
		if err := readReceipts(out, receive); err != nil {
			fmt.Fprintln(os.Stderr, "peers: read receipts:", err)
		}
	}
	return worker, nil
}

// self returns a process of this program.
func self(arguments ...string) (*process.Process, error) {
	path, err := os.Executable()
	return &process.Process{Name: "peers " + arguments[0], Command: func() *exec.Cmd {
		cmd := exec.Command(path, arguments...)
		cmd.Stderr = os.Stderr
		return cmd
	}}, err
}

// stop ends a process by SIGTERM. It may be nil, or may have ended.
func stop(p *process.Process) {
	if p == nil {
		return
	}
	if err := p.End(syscall.SIGTERM, 15*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "peers: stop", err)
	}
}

// runWorker consumes until it is stopped.
func runWorker(ctx context.Context, encoded string) error {
	var r run
	if err := json.Unmarshal([]byte(encoded), &r); err != nil {
		return err
	}
	chosen, err := specsOf(r.Way)
	if err != nil {
		return err
	}
	to := &receipts{run: r.ID, out: os.Stdout}
	if err := chosen[0].make(r).consume(ctx, to); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", r.Way, err)
	}
	return to.flush()
}
