package realtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// ownServer is a server of a test's own, which can be stopped, killed and started again.
type ownServer struct {
	*servers.Server
	t *testing.T
}

// newServer returns a server that stops when the test ends. It does not start it.
func newServer(t *testing.T, kind string, args ...string) *ownServer {
	t.Helper()
	s := must.Get(servers.New(kind, filepath.Join(t.TempDir(), kind), args...))(t)
	own := &ownServer{s, t}
	t.Cleanup(own.stop)
	return own
}

// startDatabase starts a database server with further arguments.
func startDatabase(t *testing.T, kind string, args ...string) *ownServer {
	t.Helper()
	s := newServer(t, kind, args...)
	s.start()
	return s
}

// dsn returns the DSN of a database server, without a database.
func (s *ownServer) dsn() string {
	if s.Kind == "postgresql" {
		return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable"
	}
	return "root@tcp(" + s.Addr() + ")/"
}

func (s *ownServer) start() {
	s.t.Helper()
	expect.NoError(s.t, s.Start(context.Background()))
}

// startNative starts a server that has no container here. It skips the test if servers run in containers,
// or if the server cannot run and REQUIRE_REAL is not set.
func (s *ownServer) startNative() {
	s.t.Helper()
	s.Env = append(s.Env, "ORDERCLOSE_SERVERS=native")
	nativeOnly(s.t, s.Start(context.Background()))
}

// nativeOnly skips the test, or fails it, if native servers did not start.
func nativeOnly(t *testing.T, err error) {
	t.Helper()
	if err != nil && (os.Getenv("REQUIRE_REAL") != "1" || os.Getenv("ORDERCLOSE_SERVERS") == "containers") {
		t.Skip(err)
	}
	must.Do(t, err)
}

func (s *ownServer) stop() {
	s.t.Helper()
	expect.NoError(s.t, s.Stop(context.Background()))
}

func (s *ownServer) kill() {
	s.t.Helper()
	expect.NoError(s.t, s.Kill())
}

// cluster is three brokers; the first has the id 1.
type cluster []*ownServer

// newCluster starts three brokers that notice after 3 s (default: 9) that one was killed, and stores their addresses in s.
func newCluster(t *testing.T, s *environ.Servers) (c cluster) {
	t.Helper()
	all := must.Get(servers.Brokers(filepath.Join(t.TempDir(), "cluster"), nil, "broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500"))(t)
	t.Cleanup(func() {
		expect.NoError(t, servers.KillAll(all...))
	})
	nativeOnly(t, servers.StartAll(t.Context(), all...))
	for _, b := range all {
		c = append(c, &ownServer{b, t})
	}
	s.Brokers = servers.Addrs(all)
	return c
}

func (c cluster) broker(id int32) *ownServer { return c[id-1] }

// freePort returns a port on which nothing listens, a different one each time.
func freePort(t *testing.T) string {
	t.Helper()
	port := must.Get(servers.FreePort())(t)
	return port
}

// freeAddress returns an address on the loopback with a free port.
func freeAddress(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + freePort(t)
}
