package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
)

// The names of the sides.
const (
	sideRelay    = "relay"
	sideCopy     = "copy"
	sideFranz    = "franz"
	sidePipeline = "pipeline"
	sideDispatch = "dispatch"
)

// job is the task of a side: move records from source to target until it is stopped.
type job struct {
	Side       string
	Brokers    []string
	Source     string
	Target     string
	Group      string // for sides that read in a consumer group
	DeadLetter string // for the relay
	DSN        string // DSN of the database, for the pipeline and the dispatcher
	Marks      string // for the pipeline: file for the times when orders were closed
	Profile    string // file for a CPU profile, "" for none
}

// sides move all records and then wait for more until ctx ends. None ends by itself,
// so that all are measured alike.
var sides = map[string]func(context.Context, job) error{
	sideRelay:    runRelay,
	sideCopy:     runCopyLoop,
	sideFranz:    runFranz,
	sidePipeline: runPipeline,
	sideDispatch: runDispatch,
}

// runSide is the main function of a side's process, which a signal stops.
func runSide(encoded string) error {
	var j job
	if err := json.Unmarshal([]byte(encoded), &j); err != nil {
		return err
	}
	if j.Profile != "" {
		stop, err := profile(j.Profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := sides[j.Side](ctx, j); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", j.Side, err)
	}
	return nil
}

func profile(file string) (stop func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}
