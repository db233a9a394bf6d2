package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/ops"
)

// ErrFenced is wrapped by the error of Run and ReadEvents if another process with the same
// Options.Instance has joined a group of this one. The program must end, and not be started again until
// each process has an instance of its own.
var ErrFenced = kafka.ErrFenced

// processName is the name of this process, and its client id in consumer groups: role@host:pid:port, with
// several roles closer+relay@host:pid:port. The port is that of Options.Listen, if it is set. With an instance,
// the name is role@instance:port: brokers show the client id of the first process with the instance.
func (o *Options) processName(roles []Role) string {
	name := strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Sorted(slices.Values(roles))), " ", "+"), "[]") + "@" + cmp.Or(o.Instance, hostAndPID())
	if _, port, err := net.SplitHostPort(o.Listen); err == nil {
		name += ":" + port
	}
	return name
}

// hostAndPID returns the host and the id of this process, as host:pid.
func hostAndPID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// logFenced logs which other process has the instance of this one, as far as the control topic names it.
func (a *App) logFenced(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	own, other := hostAndPID(), "unknown"
	state, _ := ops.NewControl(a.conns.Kafka, a.o.Config.Topics.Control).Read(ctx, time.Now()) // without an answer it is unknown
	for _, p := range state.Processes {
		if p.Instance == a.o.Instance && p.At != own && !p.Ended {
			other = p.Name + " at " + p.At
		}
	}
	a.o.Logger.Error("another process has the same instance, so this one ends: give each process an instance of its own",
		"instance", a.o.Instance, "process", own, "other_process", other, "err", err)
}
