package realtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/clients"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/lock"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// redisGroup is several servers that accept only TLS and a password, with certificates for localhost.
type redisGroup struct {
	t        *testing.T
	ca       *authority
	crt, key string
}

const (
	redisPassword    = "of the servers & shop"
	redisEscaped     = "of%20the%20servers%20%26%20shop"
	sentinelPassword = "ofthesentinels"
)

func newRedisGroup(t *testing.T) *redisGroup {
	t.Helper()
	if os.Getenv("ORDERCLOSE_SERVERS") == "containers" {
		t.Skip("the servers with TLS are native")
	}
	g := &redisGroup{t: t, ca: newAuthority(t, "authority of the shop")}
	g.crt, g.key = g.ca.issue(t, "server", "localhost")
	return g
}

// newServer returns a server of the group. Its arguments follow those for TLS.
func (g *redisGroup) newServer(kind string, args ...string) *ownServer {
	g.t.Helper()
	s := newServer(g.t, kind)
	s.Args = append([]string{"--port", "0", "--tls-port", s.Port, "--tls-cert-file", g.crt, "--tls-key-file", g.key, "--tls-ca-cert-file", g.ca.file,
		"--tls-auth-clients", "no", "--tls-replication", "yes"}, args...)
	return s
}

// direct returns a client of one server.
func (g *redisGroup) direct(s *ownServer) *redis.Client {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(readFile(g.t, g.ca.file)))
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: redisPassword, TLSConfig: &tls.Config{RootCAs: trusted, ServerName: "localhost"}})
	g.t.Cleanup(func() { c.Close() })
	return c
}

// grant creates the user of docs/security.md on a server, for the keys of a rig.
func (g *redisGroup) grant(s *ownServer, r *rig, also ...string) {
	g.t.Helper()
	var acl []any
	for _, word := range append(strings.Fields(aclLine.FindString(readFile(g.t, "../../../docs/security.md"))), also...) {
		acl = append(acl, strings.NewReplacer(">password", ">"+redisPassword, "~", "~"+r.prefix).Replace(word))
	}
	err := g.direct(s).Do(g.t.Context(), acl...).Err()
	must.That(g.t, err == nil, "%v: %v", acl, err)
}

// until waits until a server answers a command with what is wanted.
func (g *redisGroup) until(s *ownServer, want string, command ...any) {
	g.t.Helper()
	c := g.direct(s)
	await(g.t, func() error {
		if answer, err := c.Do(g.t.Context(), command...).Text(); !strings.Contains(answer, want) {
			return fmt.Errorf("%v on %s is %s, want %s: %w", command, s.Dir, answer, want, err)
		}
		return nil
	})
}

// sweepsUnder makes the rig use the group.
func (g *redisGroup) sweepsUnder(r *rig, url string) {
	r.servers.RedisURL = url
	r.env = append(r.env, config.EnvRedisTLSCA+"="+g.ca.file)
}

// redisFault reports whether doctor finds that Redis takes no writes.
func (r *rig) redisFault() bool {
	r.t.Helper()
	out, _ := r.cli("doctor")
	return strings.Contains(out, "redis-or-the-lock-is-down")
}

// clusterACL finds what a user needs in a cluster besides.
var clusterACL = regexp.MustCompile("In a Redis cluster the user also needs `([^`]+)`")

// The server that has the lock is killed in the middle of a sweep, and its replica takes over, with or without the
// lock. Every order is closed once, and later the lock is on the new server.
func TestReal_RedisFailsOverInTheMiddleOfASweep(t *testing.T) {
	all := realServers(t)
	t.Parallel()
	g := newRedisGroup(t)
	master := g.newServer("redis", "--requirepass", redisPassword, "--masterauth", redisPassword)
	master.startNative()
	replica := g.newServer("redis", "--requirepass", redisPassword, "--masterauth", redisPassword, "--replica-announce-ip", "localhost", "--replicaof",
		"localhost "+master.Port)
	replica.startNative()
	var hosts []string
	for range 3 {
		s := g.newServer("sentinel")
		conf := fmt.Sprintf(`sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel monitor shop localhost %s 2
sentinel auth-pass shop "%s"
sentinel down-after-milliseconds shop 500
sentinel failover-timeout shop 3000
sentinel announce-ip localhost
sentinel sentinel-pass %s
requirepass %[3]s
`, master.Port, redisPassword, sentinelPassword)
		must.Do(t, os.WriteFile(filepath.Join(s.Dir, "sentinel.conf"), []byte(conf), 0o600))
		s.startNative()
		hosts = append(hosts, "localhost:"+s.Port)
	}
	r := newRig(t, all)
	r.disturbed = true
	g.sweepsUnder(r, "rediss://:"+sentinelPassword+"@"+hosts[0]+"/0?addr="+strings.Join(hosts[1:], "&addr=")+
		"&master_name=shop&username=orderclose&password="+redisEscaped)
	g.grant(master, r)
	g.grant(replica, r)
	g.until(replica, "master_link_status:up", "info", "replication")
	must.That(t, !r.redisFault(), "before the failover Redis takes no writes")
	r.slowly()
	r.missed(400)
	r.start("compensator-1")
	r.untilClosed(30)
	r.start("compensator-2")
	must.Do(t, master.Kill())
	r.untilClosed(400)
	v := r.check()
	expect.That(t, v.ByPath["sweep"] == 400, "closed %v", v.ByPath)
	g.until(replica, "role:master", "info", "replication")
	r.until("a compensator has the lock on the new server", func() bool {
		keys, err := g.direct(replica).Keys(t.Context(), r.cfg.Compensator.Lock.Key+"-*").Result()
		return err == nil && len(keys) == 1
	})
	r.killAll()
	r.until("doctor finds no fault", func() bool { return !r.redisFault() })
}

// Three masters share the keys. The lock is on one of them; without this one the lease in the database is the lock.
func TestReal_TheLockIsInARedisCluster(t *testing.T) {
	all := realServers(t)
	t.Parallel()
	g := newRedisGroup(t)
	var nodes []*ownServer
	var hosts []string
	for i := range 3 {
		bus := must.Get(servers.FreePort())(t)
		node := g.newServer("redis", "--requirepass", redisPassword, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", bus,
			"--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname")
		node.startNative()
		nodes, hosts = append(nodes, node), append(hosts, "localhost:"+node.Port)
		c, slots := g.direct(node), 16384/3
		last := (i+1)*slots - 1
		if i == 2 {
			last = 16383
		}
		must.Do(t, c.ClusterAddSlotsRange(t.Context(), i*slots, last).Err())
		must.Do(t, g.direct(nodes[0]).Do(t.Context(), "cluster", "meet", "127.0.0.1", node.Port, bus).Err())
	}
	for _, node := range nodes {
		g.until(node, "cluster_state:ok", "cluster", "info")
		g.until(node, "cluster_known_nodes:3", "cluster", "info")
	}
	r := newRig(t, all)
	r.disturbed = true
	g.sweepsUnder(r, "rediss://orderclose:"+redisEscaped+"@"+hosts[0]+"?addr="+strings.Join(hosts[1:], "&addr="))
	for _, node := range nodes {
		g.grant(node, r, strings.Fields(clusterACL.FindStringSubmatch(readFile(t, "../../../docs/security.md"))[1])...)
	}
	r.missed(1)
	s := must.Get(config.FromEnviron(func(name string) (string, bool) {
		return map[string]string{config.EnvRedis: r.servers.RedisURL, config.EnvRedisTLSCA: g.ca.file}[name], true
	}, config.EnvRedis))(t)
	c := must.Get(clients.Connect(s, clients.Database{}, r.cfg, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(c.Close)
	first := lock.NewRedis(lock.Options{Client: c.Redis, Key: r.cfg.Compensator.Lock.Key})
	r.until("Redis gives the lock", func() bool { return first.Hold(t.Context(), func(context.Context) error { return nil }) == nil }) // it may be busy
	expect.That(t, !r.redisFault(), "doctor finds a fault")
	slot := must.Get(g.direct(nodes[0]).ClusterKeySlot(t.Context(), r.cfg.Compensator.Lock.Key).Result())(t)
	must.Do(t, nodes[min(int(slot)/(16384/3), 2)].Kill())
	r.start("compensator")
	r.untilClosed(1)
	r.until("doctor reports it", func() bool { return r.redisFault() })
	r.check()
	log := r.logs.Tail(1 << 20)
	expect.That(t, !strings.Contains(log, "NOPERM"), "the user lacks a right")
}
