package realtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/orderclose/orderclose/internal/config"
)

// databases are the kinds of database for the tests, and the variables that name a
// server of each kind.
var databases = []struct{ kind, variable string }{
	{"mariadb", config.EnvDSN}, {"mysql", "ORDERCLOSE_MYSQL_DSN"},
}

// eachDatabase runs test once for each kind of database, with the servers that the
// environment names, as a parallel subtest with the name of the kind.
func eachDatabase(t *testing.T, test func(t *testing.T, s config.Servers)) {
	t.Parallel()
	oneDatabaseAfterAnother(t, func(t *testing.T, s config.Servers) {
		t.Parallel()
		test(t, s)
	})
}

// oneDatabaseAfterAnother is for a test that keeps the disk of the servers busy: it runs while no
// parallel test runs. Locks of other tests would time out.
func oneDatabaseAfterAnother(t *testing.T, test func(t *testing.T, s config.Servers)) {
	for _, d := range databases {
		t.Run(d.kind, func(t *testing.T) {
			s := servers(t)
			if s.DSN = os.Getenv(d.variable); s.DSN == "" {
				missing(t, fmt.Errorf("%s names no server", d.variable))
			}
			test(t, s)
		})
	}
}

// missing skips a test that cannot run, or fails it with REQUIRE_REAL.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("REQUIRE_REAL") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// ownServer is a database server of a test's own.
type ownServer struct {
	t    *testing.T
	kind string // one of databases
	dir  string
	port string
	args []string
}

// startDatabase starts a server with further arguments. It stops when the test ends.
func startDatabase(t *testing.T, kind string, args ...string) *ownServer {
	t.Helper()
	s := &ownServer{t: t, kind: kind, dir: filepath.Join(t.TempDir(), kind), port: freePort(t), args: args}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *ownServer) addr() string { return "127.0.0.1:" + s.port }

// dsn returns the DSN of the server, without a database.
func (s *ownServer) dsn() string { return "root@tcp(" + s.addr() + ")/" }

func (s *ownServer) start() { s.script(append([]string{"start", s.dir, s.port}, s.args...)...) }

func (s *ownServer) stop() { s.script("stop", s.dir) }

func (s *ownServer) script(args ...string) {
	s.t.Helper()
	script, err := filepath.Abs("../../../deploy/native/" + s.kind + ".sh")
	if err != nil {
		s.t.Fatal(err)
	}
	if out, err := exec.Command(script, args...).CombinedOutput(); err != nil {
		s.t.Errorf("%s.sh %s: %v\n%s", s.kind, args[0], err, out)
	}
}

// usedPorts are the ports that freePort has returned.
var usedPorts sync.Map

// freePort returns a port on which nothing listens, a different one each time.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		l.Close()
		if _, used := usedPorts.LoadOrStore(port, true); !used {
			return port
		}
	}
}

// freeAddress returns an address on the loopback with a free port.
func freeAddress(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + freePort(t)
}
