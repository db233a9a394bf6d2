package pipeline

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/orderclose/orderclose/internal/kafka"
)

// ErrFenced is wrapped by the error of Run and of eventreader.Read if another process with the same
// Options.Instance has joined a group of this one. The program must end, and not be started again until
// each process has an instance of its own.
var ErrFenced = kafka.ErrFenced

// ProcessName returns the name of a process with these roles, and its client id in consumer groups: role@host:pid:port, with
// several roles closer+relay@host:pid:port. The port is that of Options.Listen, if it is set. With an instance,
// the name is role@instance:port: brokers show the client id of the first process with the instance.
func (o *Options) ProcessName(roles []Role) string {
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
