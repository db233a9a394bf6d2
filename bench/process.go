package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// stopLimit is how long a process may take to stop.
const stopLimit = 15 * time.Second

// side is a running side. stop must be called once.
type side struct {
	*process.Process
	out bytes.Buffer
}

// start runs the job in another process of this program. The variable PROFILE names a
// folder for a CPU profile of each.
func (p *workspace) start(j job) (*side, error) {
	j.Brokers = p.brokers
	if dir := os.Getenv("PROFILE"); dir != "" {
		j.Profile = filepath.Join(dir, p.name(j.Side)[len(p.prefix):]+".prof")
	}
	encoded, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &side{}
	s.Process = &process.Process{Name: j.Side, Command: func() *exec.Cmd {
		cmd := exec.Command(self, "side", string(encoded))
		cmd.Stdout, cmd.Stderr = &s.out, os.Stderr
		return cmd
	}}
	return s, s.Start()
}

// stop stops the process and returns the resources that it has used.
func (s *side) stop() (process.Used, error) {
	if err := s.End(syscall.SIGTERM, stopLimit); err != nil {
		return process.Used{}, err
	}
	var o outcome
	if err := json.Unmarshal(s.out.Bytes(), &o); err != nil {
		return process.Used{}, fmt.Errorf("%s printed %q: %w", s.Name, s.out.String(), err)
	}
	state := s.State()
	return process.Used{CPU: state.UserTime() + state.SystemTime(), Peak: o.PeakBytes}, nil
}

// running is a process of the product's program.
type running struct {
	*process.Process
	log bytes.Buffer
}

// run starts the program.
func (s *served) run(args ...string) (*running, error) {
	r := &running{}
	r.Process = &process.Process{Name: "orderclose " + strings.Join(args, " "), Command: func() *exec.Cmd {
		cmd := s.command(args...)
		cmd.Stderr = &r.log
		return cmd
	}}
	return r, r.Start()
}

// stop stops the process. Only the first call does.
func (r *running) stop() error {
	if err := r.End(syscall.SIGTERM, stopLimit); err != nil {
		return fmt.Errorf("%w\n%s", err, r.log.String())
	}
	return nil
}
