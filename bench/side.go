package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// The names of the sides.
const (
	sideRelay        = "relay"
	sideCopy         = "copy"
	sideReaderWriter = "reader_writer"
	sideFranz        = "franz"
	sidePipeline     = "pipeline"
	sideDispatch     = "dispatch"
)

// job is what a side is to do: move records from source to target until it is
// told to stop.
type job struct {
	Side       string
	Brokers    []string
	Source     string
	Target     string
	Partitions int
	Group      string // for sides that read as a group
	DeadLetter string // for the relay
	DSN        string // for the pipeline and the dispatcher: the database
	Marks      string // for the pipeline: a file to write down when orders were closed
	Profile    string // a file for a CPU profile, "" for none
}

// sides never end by themselves, so that all of them are timed alike: they move
// what there is, and then wait for more, until ctx ends.
var sides = map[string]func(context.Context, job) error{
	sideRelay:        runRelay,
	sideCopy:         runCopyLoop,
	sideReaderWriter: runReaderWriter,
	sideFranz:        runFranz,
	sidePipeline:     runPipeline,
	sideDispatch:     runDispatch,
}

// outcome is what a side's process says of itself at its end.
type outcome struct {
	// PeakBytes is the most memory that was resident. The parent cannot ask for it:
	// the rusage of a child begins with what its parent had at the fork.
	PeakBytes int64
}

// runSide is the main function of a side's process. It stops at the end of
// stdin, and so also when its parent dies.
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
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := sides[j.Side](ctx, j); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", j.Side, err)
	}
	return json.NewEncoder(os.Stdout).Encode(outcome{residentPeak("self")})
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
