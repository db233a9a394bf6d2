package main

import (
	"bytes"
	"encoding/json"
	"errors"
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
type side struct{ *process.Process }

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
	s := &side{&process.Process{Name: j.Side, Command: func() *exec.Cmd {
		cmd := exec.Command(self, "side", string(encoded))
		cmd.Stderr = os.Stderr
		return cmd
	}}}
	return s, s.Start()
}

// stop stops the process and returns the resources that it has used.
func (s *side) stop() (process.Used, error) {
	used, err := process.UsedBy(s.PID())
	return used, errors.Join(err, s.End(syscall.SIGTERM, stopLimit))
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
