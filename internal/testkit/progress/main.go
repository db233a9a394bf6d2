// Command progress runs go test, and prints while the tests run:
//
//   - one line for each package as soon as it ends, and the output of its failed tests;
//   - every 30 s, which packages still run, and how many of their tests have ended;
//   - with -v, all output of the tests as it comes;
//   - at the end a table: what each package and each kind of server took of time and of the processors.
//
// go test itself prints packages in the order of its arguments, and so nothing until the first of them has ended.
//
//	usage: progress DIR [go test argument ...]
//
// DIR is the folder below which the servers of the tests run.
//
//	main.go   runs go test
//	print.go  the lines while the tests run
//	cost.go   what packages and servers cost, and the table
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 3 && os.Args[1] == measureProgram {
		os.Exit(measure(os.Args[2], os.Args[3:]))
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: progress DIR [go test argument ...]")
		os.Exit(2)
	}
	os.Exit(run(os.Args[1], os.Args[2:]))
}

// run runs go test and returns its exit code.
func run(dir string, args []string) int {
	began := time.Now()
	own, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	costs := &costs{dir: dir, file: filepath.Join(dir, "costs")}
	wrapper := strings.Join([]string{own, measureProgram, costs.file}, " ")
	cmd := exec.Command("go", slices.Concat([]string{"test", "-json", "-exec", wrapper}, args)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// A signal to the group ends go test, and that ends this program after the table. An ignored signal would be ignored by go test too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM)
	p := &printer{out: os.Stdout, all: slices.Contains(args, "-v") || slices.Contains(args, "-test.v")}
	go every(30*time.Second, func() { p.report(time.Now()) })
	go every(time.Second, costs.look)
	p.readAll(events)
	err = cmd.Wait()
	costs.look()
	costs.print(os.Stdout, time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	return exitCode(err)
}

func every(d time.Duration, do func()) {
	for range time.Tick(d) {
		do()
	}
}

// exitCode is the code of a program that has ended: 1 if a signal has ended it.
func exitCode(err error) int {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode()
	}
	if err != nil {
		return 1
	}
	return 0
}

// readAll handles all lines of go test.
func (p *printer) readAll(events io.Reader) {
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			p.handle(line, time.Now())
		}
		if err != nil {
			return
		}
	}
}
