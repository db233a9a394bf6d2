//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/power"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// diskSize is the size of the disk of each broker and of the database, a tmpfs.
const diskSize = "2g"

// clockLibrary is libfaketime, as Debian installs it.
const clockLibrary = "/usr/lib/*/faketime/libfaketimeMT.so.1"

// cluster is every server, and the proxies in front of them. The pipeline connects through the proxies, everything else directly.
type cluster struct {
	variant
	dir     string                          // of the servers
	disks   bool                            // the data of brokers and database are on disks that can be filled
	powered map[*servers.Server]*power.Disk // with POWER=1: the disk of each server
	clock   string                          // file that steps the clock of the database; "": it cannot be stepped

	brokers         []*servers.Server
	kind            *database
	database, redis *servers.Server
	direct          []string // addresses of the brokers
	links           []*testkit.Proxy
	databaseLink    *testkit.Proxy
	redisLink       *testkit.Proxy

	db          *sql.DB       // direct, as root, without a database
	redisClient *redis.Client // direct
}

// brokerSettings keep the quorum together: with the defaults, two seconds without CPU time cost it its leader.
var brokerSettings = []string{
	"controller.quorum.fetch.timeout.ms=8000", "controller.quorum.election.timeout.ms=3000", "controller.quorum.request.timeout.ms=8000",
	"broker.session.timeout.ms=9000", "broker.heartbeat.interval.ms=1000",
}

// startCluster starts all servers below dir.
func startCluster(ctx context.Context, dir string, kind *database, v variant) (*cluster, error) {
	c := &cluster{variant: v, dir: dir, kind: kind}
	if err := c.define(ctx, dir); err != nil {
		return c, err
	}
	if err := servers.StartAll(ctx, c.servers()...); err != nil {
		return c, err
	}
	if err := c.syncDisks(); err != nil {
		return c, err
	}
	return c, c.connect()
}

func (c *cluster) servers() []*servers.Server {
	return append(c.brokers[:len(c.brokers):len(c.brokers)], c.database, c.redis)
}

// define creates folders, disks and proxies.
func (c *cluster) define(ctx context.Context, dir string) (err error) {
	secured, err := c.secureListener(ctx, dir)
	if err != nil {
		return err
	}
	c.brokers, err = servers.BrokersOf(c.variant.brokers, dir, func(target string) (string, error) {
		link, err := testkit.NewProxy(target)
		if err != nil {
			return "", err
		}
		c.links = append(c.links, link)
		return link.Addr(), nil
	}, slices.Concat(brokerSettings, secured)...)
	if err != nil {
		return err
	}
	c.direct = servers.Addrs(c.brokers)
	if c.database, err = servers.New(c.kind.server, filepath.Join(dir, c.kind.server)); err != nil {
		return err
	}
	if c.redis, err = servers.New("redis", filepath.Join(dir, "redis")); err != nil {
		return err
	}
	if c.variant.power {
		return errors.Join(c.powerDisks(dir), c.linkServers())
	}
	c.disks = mountDisk(c.database.Dir) == nil
	for _, s := range c.brokers {
		c.disks = c.disks && mountDisk(filepath.Join(s.Dir, "data")) == nil
	}
	// Not for a broker: under libfaketime a JVM takes minutes to start.
	if library, _ := filepath.Glob(clockLibrary); len(library) > 0 {
		c.clock = filepath.Join(dir, "database.clock")
		c.database.Env = []string{"LD_PRELOAD=" + library[0], "FAKETIME_TIMESTAMP_FILE=" + c.clock, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
		if err := c.step(0); err != nil {
			return err
		}
	}
	return c.linkServers()
}

// linkServers creates the proxies of database and Redis.
func (c *cluster) linkServers() (err error) {
	if c.databaseLink, err = testkit.NewProxy(c.database.Addr()); err != nil {
		return err
	}
	c.redisLink, err = testkit.NewProxy(c.redis.Addr())
	return err
}

// mountDisk mounts a small disk in memory. Only root can do that.
func mountDisk(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return syscall.Mount("orderclose", path, "tmpfs", 0, "mode=700,size="+diskSize)
}

// step sets the clock of the database off by d. The server notices within a second.
func (c *cluster) step(d time.Duration) error {
	text := fmt.Sprintf("%+d\n", int(d/time.Second))
	if err := os.WriteFile(c.clock+".new", []byte(text), 0o644); err != nil { // a server may run as another user
		return err
	}
	return os.Rename(c.clock+".new", c.clock)
}

// connect opens the direct connections, and creates the user of the pipeline.
func (c *cluster) connect() (err error) {
	// Each reset connection would be a line on stderr.
	if err := mysql.SetLogger(&mysql.NopLogger{}); err != nil {
		return err
	}
	if c.db, err = c.open(c.kind.root, c.kind.noName); err != nil {
		return err
	}
	for _, statement := range c.kind.user {
		if _, err = c.db.Exec(statement); err != nil {
			return err
		}
	}
	c.redisClient = redis.NewClient(&redis.Options{Addr: c.redis.Addr()})
	return nil
}

// open opens a database for a user, directly.
func (c *cluster) open(user, name string) (*sql.DB, error) {
	return sql.Open(c.kind.driver, c.kind.dsn(user, c.database.Addr(), name, false))
}

// linked returns the addresses of the brokers' proxies.
func (c *cluster) linked() (all []string) {
	for _, l := range c.links {
		all = append(all, l.Addr())
	}
	return all
}

// stop stops all servers. Those that were not defined are nil.
func (c *cluster) stop() {
	for _, s := range c.servers() {
		if s != nil {
			_ = s.Kill()
		}
	}
	for _, l := range append(c.links, c.databaseLink, c.redisLink) {
		if l != nil {
			_ = l.Close()
		}
	}
}
