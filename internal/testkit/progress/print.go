package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// pkg is what is known of a package whose tests run.
type pkg struct {
	began  time.Time
	ended  int                 // tests
	output map[string][]string // by test; "": of the package
}

type printer struct {
	mu      sync.Mutex
	out     io.Writer
	all     bool // print all output
	running map[string]*pkg
}

// handle handles one line of go test. A line that is no event is printed.
func (p *printer) handle(line []byte, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		fmt.Fprintf(p.out, "%s", line)
		return
	}
	if e.Action == "build-output" {
		fmt.Fprint(p.out, e.Output)
	}
	if e.Package == "" {
		return
	}
	if p.running == nil {
		p.running = map[string]*pkg{}
	}
	of := p.running[e.Package]
	if of == nil {
		of = &pkg{began: now, output: map[string][]string{}}
		p.running[e.Package] = of
	}
	switch e.Action {
	case "output":
		p.keep(of, e)
	case "pass", "fail", "skip":
		p.end(of, e)
	}
}

func (p *printer) keep(of *pkg, e event) {
	switch {
	case p.all:
		fmt.Fprint(p.out, e.Output)
	case e.Test != "" || !strings.HasPrefix(e.Output, "ok  \t") && e.Output != "PASS\n":
		of.output[e.Test] = append(of.output[e.Test], e.Output)
	}
}

// end handles the end of a test or of a package. The output of a test that failed is printed.
func (p *printer) end(of *pkg, e event) {
	if e.Action == "fail" && !p.all {
		fmt.Fprint(p.out, strings.Join(of.output[e.Test], ""))
	}
	delete(of.output, e.Test)
	if e.Test != "" {
		of.ended++
		return
	}
	delete(p.running, e.Package)
	if word := map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action]; word != "" && !p.all {
		fmt.Fprintf(p.out, "%-4s  %s  %.1fs\n", word, e.Package, e.Elapsed)
	}
}

// report prints the packages that still run.
func (p *printer) report(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	for name, of := range p.running {
		lines = append(lines, fmt.Sprintf("... %s: %d tests ended in %v\n", name, of.ended, now.Sub(of.began).Round(time.Second)))
	}
	slices.Sort(lines)
	fmt.Fprint(p.out, strings.Join(lines, ""))
}
