// Command proof runs steps of make test-all.
//
//	proof all      every step; writes the result into docs/reliability.md if all have passed
//	proof changed  the parts whose code has changed since the last result there, for at most eight minutes
//
//	main.go    the two commands
//	parts.go   the parts, and the table of folders
//	change.go  what has changed
//	record.go  the result in docs/reliability.md
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// changedLimit is how long the parts of .ci/run may take together, so that all of .ci/run stays below 20 minutes.
const changedLimit = 8 * time.Minute

// busy are the steps of make test-all that are not parts, because .ci/run has them too.
var busy = []part{
	{"lint", []string{"make", "lint"}},
	{"chaos", []string{"env", "SEEDS=500", "make", "chaos"}},
	{"race", []string{"make", "race"}},
}

// waiting are the parts that mostly wait for servers, the longest first. make test-all runs them one after another beside
// all other steps, which keep the processors busy.
var waiting = []string{"scenarios", "game day", "console", "upgrade", "connectors"}

func main() {
	if len(os.Args) != 2 {
		exit(errors.New("usage: proof all|changed"))
	}
	switch os.Args[1] {
	case "all":
		exit(all())
	case "changed":
		exit(changed())
	default:
		exit(fmt.Errorf("there is no command %s", os.Args[1]))
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// step is what a step has taken.
type step struct {
	name string
	took time.Duration
}

// all runs every step, also after one has failed. It prints the output of a step when the step ends.
func all() error {
	if unsaved, err := git("status", "--porcelain"); err != nil || unsaved != "" {
		return errors.Join(err, fmt.Errorf("the result is that of a commit, and these files are not committed:\n%s", unsaved))
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	began := time.Now()
	first, second := slices.Clone(busy), []part{}
	for _, name := range waiting {
		second = append(second, parts[slices.IndexFunc(parts, func(p part) bool { return p.name == name })])
	}
	for _, p := range parts {
		if !slices.Contains(waiting, p.name) {
			first = append(first, p)
		}
	}
	for i, p := range first {
		first[i].command = slices.Concat([]string{"nice", "-n", "15"}, p.command) // servers that get no processor for seconds fail tests
	}
	var lanes sync.WaitGroup
	var mu sync.Mutex
	var steps []step
	var failed []string
	for _, lane := range [][]part{first, second} {
		lanes.Go(func() {
			for _, p := range lane {
				var out bytes.Buffer
				s, err := play(context.Background(), p, &out)
				mu.Lock()
				steps = append(steps, s)
				if err != nil {
					failed = append(failed, p.name)
				}
				_, _ = os.Stdout.Write(out.Bytes())
				mu.Unlock()
			}
		})
	}
	lanes.Wait()
	for _, s := range steps {
		fmt.Printf("%6.0f s  %s\n", s.took.Seconds(), s.name)
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return record{commit[:12], began, time.Since(began), steps}.write()
}

// changed runs the parts whose code has changed, and all mutants of it.
func changed() error {
	c, err := changeSince()
	if err != nil {
		return err
	}
	fmt.Println(c.why)
	ctx, cancel := context.WithTimeout(context.Background(), changedLimit)
	defer cancel()
	var failed, left []string
	for _, p := range parts {
		if p.name == "mutants" && !slices.Contains(c.parts, p.name) {
			p.command = slices.Concat([]string{"env", "MUTANTS_IN=" + strings.Join(c.folders, " "), fmt.Sprint("MUTANTS_EIGHTH=", c.eighth)}, p.command)
		} else if !slices.Contains(c.parts, p.name) {
			continue
		}
		_, err := play(ctx, p, os.Stdout)
		switch {
		case ctx.Err() != nil:
			left = append(left, p.name)
		case err != nil:
			failed = append(failed, p.name)
		}
	}
	if len(left) > 0 {
		fmt.Printf("not run since %s, because eight minutes were over: %s\n", c.since, strings.Join(left, ", "))
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// play runs a step until it ends, or until ctx ends, and writes what it prints.
func play(ctx context.Context, p part, out io.Writer) (step, error) {
	if ctx.Err() != nil {
		return step{name: p.name}, ctx.Err()
	}
	fmt.Fprintf(out, "\n=== %s ===\n", p.name)
	began := time.Now()
	cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	// The group has the servers' scripts and the tests. They stop their servers when they get the signal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	err := cmd.Run()
	took := time.Since(began)
	fmt.Fprintf(out, "=== %s took %.0f s\n", p.name, took.Seconds())
	return step{p.name, took}, err
}

// git returns what a command of git prints.
func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("git %v: %w: %s", args, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
