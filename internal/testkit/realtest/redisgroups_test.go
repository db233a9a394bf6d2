package realtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/environ"
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

// start starts a server of the group. Its arguments follow those for TLS.
func (g *redisGroup) start(kind, conf string, args ...string) *ownServer {
	g.t.Helper()
	s := newServer(g.t, kind)
	s.Args = append([]string{"--port", "0", "--tls-port", s.Port, "--tls-cert-file", g.crt, "--tls-key-file", g.key, "--tls-ca-cert-file", g.ca.file,
		"--tls-auth-clients", "no", "--tls-replication", "yes"}, args...)
	if conf != "" {
		must.Do(g.t, os.WriteFile(filepath.Join(s.Dir, kind+".conf"), []byte(conf), 0o600))
	}
	s.startNative()
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

// grant creates the user of docs/security.md on a server.
func (g *redisGroup) grant(s *ownServer, also ...string) {
	g.t.Helper()
	var acl []any
	for _, word := range append(strings.Fields(aclLine.FindString(readFile(g.t, "../../../docs/security.md"))), also...) {
		acl = append(acl, strings.ReplaceAll(word, ">password", ">"+redisPassword))
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

// hold takes the lock of compensators whose environment has the URL. The holder must lose the lock by lose.
func (g *redisGroup) hold(url string, lose func()) {
	g.t.Helper()
	client := tlsEnviron{environ.EnvRedis: url, environ.EnvRedisTLSCA: g.ca.file}.connect(g.t).Redis
	ctx, cancel := context.WithTimeout(g.t.Context(), waitLimit)
	defer cancel()
	err := patient{lock.NewRedis(lock.Options{Client: client, Expiry: 3 * time.Second})}.Hold(ctx, func(held context.Context) error {
		lose()
		<-held.Done()
		return nil
	})
	expect.Is(g.t, err, lock.ErrLost, "the end of the work under the lock")
}

// The server of the lock is killed, and its replica takes over. The lock is then taken there.
func TestReal_TheLockFollowsAFailoverOfRedis(t *testing.T) {
	placementOf(t)
	t.Parallel()
	g := newRedisGroup(t)
	master := g.start("redis", "", "--requirepass", redisPassword, "--masterauth", redisPassword)
	replica := g.start("redis", "", "--requirepass", redisPassword, "--masterauth", redisPassword, "--replica-announce-ip", "localhost", "--replicaof",
		"localhost "+master.Port)
	var hosts []string
	for range 3 {
		s := g.start("sentinel", fmt.Sprintf(`sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel monitor shop localhost %s 2
sentinel auth-pass shop "%s"
sentinel down-after-milliseconds shop 500
sentinel failover-timeout shop 3000
sentinel announce-ip localhost
sentinel sentinel-pass %s
requirepass %[3]s
`, master.Port, redisPassword, sentinelPassword))
		hosts = append(hosts, "localhost:"+s.Port)
	}
	g.grant(master)
	g.grant(replica)
	g.until(replica, "master_link_status:up", "info", "replication")
	url := "rediss://:" + sentinelPassword + "@" + hosts[0] + "/0?addr=" + strings.Join(hosts[1:], "&addr=") +
		"&master_name=shop&username=orderclose&password=" + redisEscaped
	taken := func() { must.Do(t, g.direct(replica).Set(t.Context(), lock.DefaultKey, "another", waitLimit).Err()) }
	g.hold(url, func() {
		must.Do(t, master.Kill())
		g.until(replica, "role:master", "info", "replication")
		taken()
	})
	must.Do(t, g.direct(replica).Del(t.Context(), lock.DefaultKey).Err())
	g.hold(url, taken)
}

// clusterACL finds what a user needs in a cluster besides.
var clusterACL = regexp.MustCompile("In a Redis cluster the user also needs `([^`]+)`")

// Three masters share the keys. The lock is on one of them, which is killed.
func TestReal_TheLockIsInARedisCluster(t *testing.T) {
	placementOf(t)
	t.Parallel()
	g := newRedisGroup(t)
	var nodes []*ownServer
	var hosts []string
	for i := range 3 {
		bus := must.Get(servers.FreePort())(t)
		node := g.start("redis", "", "--requirepass", redisPassword, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", bus,
			"--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname")
		nodes, hosts = append(nodes, node), append(hosts, "localhost:"+node.Port)
		c, slots := g.direct(node), 16384/3
		last := (i+1)*slots - 1
		if i == 2 {
			last = 16383
		}
		must.Do(t, c.ClusterAddSlotsRange(t.Context(), i*slots, last).Err())
		must.Do(t, g.direct(nodes[0]).Do(t.Context(), "cluster", "meet", "127.0.0.1", node.Port, bus).Err())
		g.grant(node, strings.Fields(clusterACL.FindStringSubmatch(readFile(t, "../../../docs/security.md"))[1])...)
	}
	for _, node := range nodes {
		g.until(node, "cluster_state:ok", "cluster", "info")
		g.until(node, "cluster_known_nodes:3", "cluster", "info")
	}
	slot := must.Get(g.direct(nodes[0]).ClusterKeySlot(t.Context(), lock.DefaultKey).Result())(t)
	g.hold("rediss://orderclose:"+redisEscaped+"@"+hosts[0]+"?addr="+strings.Join(hosts[1:], "&addr="), func() {
		must.Do(t, nodes[min(int(slot)/(16384/3), 2)].Kill())
	})
}
