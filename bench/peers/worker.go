package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// newWorker returns the process that consumes. It calls receive for each receipt.
func newWorker(r run, receive func(number int, at int64)) (*program, error) {
	encoded, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &program{
		name:    "the worker of " + r.Way,
		command: func() *exec.Cmd { return exec.Command(self, "worker", string(encoded)) },
		output: func(out io.Reader) {
			if err := readReceipts(out, receive); err != nil {
				fmt.Fprintln(os.Stderr, "peers: read receipts:", err)
			}
		},
	}, nil
}

// runWorker consumes until it is stopped, or until the driver process has ended.
func runWorker(ctx context.Context, encoded string) error {
	var r run
	if err := json.Unmarshal([]byte(encoded), &r); err != nil {
		return err
	}
	chosen, err := specsOf(r.Way)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	to := &receipts{run: r.ID, out: os.Stdout}
	if err := chosen[0].make(r).consume(ctx, to); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", r.Way, err)
	}
	return to.flush()
}
