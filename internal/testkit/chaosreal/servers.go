//go:build linux

package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/orderclose/orderclose/internal/testkit"
)

// startTime is how long a server may take to start. On idle cores a broker needs five seconds.
const startTime = 4 * time.Minute

// diskSize is the size of the disk of each broker and of the database, a tmpfs.
const diskSize = "2g"

// clockLibrary is libfaketime, as Debian installs it.
const clockLibrary = "/usr/lib/*/faketime/libfaketimeMT.so.1"

// server is a Kafka broker, the database or Redis: a process that a script starts.
type server struct {
	name   string // also of its folder
	script string
	args   []string // of the script, after the folder
	env    []string
	dir    string
	native string // the folder of the scripts
	clock  string // file that steps its clock; "": it cannot be stepped
}

// cluster is every server, and the proxies in front of them. The pipeline connects through the
// proxies, everything else directly.
type cluster struct {
	dir, native string
	disks       bool // the data of brokers and database are on disks that can be filled
	clocks      bool // the clock of the database can be stepped

	brokers                [3]*server
	database, redis        *server
	direct                 []string // addresses of the brokers
	links                  [3]*testkit.Proxy
	databaseLink           *testkit.Proxy
	redisLink              *testkit.Proxy
	databaseAddr, redisAdr string

	db          *sql.DB       // direct, as root, without a database
	redisClient *redis.Client // direct
}

// startCluster starts all servers below dir.
func startCluster(ctx context.Context, dir, native string) (*cluster, error) {
	c := &cluster{dir: dir, native: native}
	library, _ := filepath.Glob(clockLibrary)
	c.clocks = len(library) > 0
	if err := c.define(library); err != nil {
		return nil, err
	}
	all := append(c.brokers[:], c.database, c.redis)
	errs := make([]error, len(all))
	var starts sync.WaitGroup
	for i, s := range all {
		starts.Go(func() {
			if errs[i] = s.start(ctx); errs[i] != nil { // once more: a busy machine may be too slow
				errs[i] = s.start(ctx)
			}
		})
	}
	starts.Wait()
	for _, err := range errs {
		if err != nil {
			return c, err
		}
	}
	return c, c.connect()
}

// define chooses ports, creates folders, disks and proxies.
func (c *cluster) define(library []string) (err error) {
	ports := make([]string, 11)
	for i := range ports {
		if ports[i], err = freePort(ports); err != nil {
			return err
		}
	}
	voters := fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%s,2@127.0.0.1:%s,3@127.0.0.1:%s", ports[6], ports[7], ports[8])
	c.disks = true
	for i := range c.brokers {
		inner, outer, control := ports[i], ports[3+i], ports[6+i]
		if c.links[i], err = testkit.NewProxy("127.0.0.1:" + outer); err != nil {
			return err
		}
		c.direct = append(c.direct, "127.0.0.1:"+inner)
		s := c.server(fmt.Sprint("kafka-", i+1), "kafka.sh", inner, fmt.Sprint("node.id=", i+1),
			fmt.Sprintf("listeners=INNER://127.0.0.1:%s,CLIENT://127.0.0.1:%s,CONTROLLER://127.0.0.1:%s", inner, outer, control),
			fmt.Sprintf("advertised.listeners=INNER://127.0.0.1:%s,CLIENT://%s", inner, c.links[i].Addr()),
			"listener.security.protocol.map=INNER:PLAINTEXT,CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
			"inter.broker.listener.name=INNER", voters,
			"offsets.topic.replication.factor=3", "transaction.state.log.replication.factor=3",
			"transaction.state.log.min.isr=2", "share.coordinator.state.topic.replication.factor=3",
			"share.coordinator.state.topic.min.isr=2",
			// With the defaults, two seconds without CPU time cost the quorum its leader.
			"controller.quorum.fetch.timeout.ms=8000", "controller.quorum.election.timeout.ms=3000", "controller.quorum.request.timeout.ms=8000",
			"broker.session.timeout.ms=9000", "broker.heartbeat.interval.ms=1000")
		s.env = append(s.env, "KAFKA_HEAP_OPTS=-Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1")
		c.brokers[i] = s
		c.disks = c.disks && mountDisk(filepath.Join(s.dir, "data")) == nil
	}
	c.database = c.server("mariadb", "mariadb.sh", ports[9])
	c.disks = c.disks && mountDisk(c.database.dir) == nil
	c.redis = c.server("redis", "redis.sh", ports[10])
	c.databaseAddr, c.redisAdr = "127.0.0.1:"+ports[9], "127.0.0.1:"+ports[10]
	// Not of a broker: under libfaketime a JVM takes minutes to start.
	if s := c.database; c.clocks {
		s.clock = filepath.Join(c.dir, s.name+".clock")
		s.env = append(s.env, "LD_PRELOAD="+library[0], "FAKETIME_TIMESTAMP_FILE="+s.clock, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1")
		if err := s.step(0); err != nil {
			return err
		}
	}
	if c.databaseLink, err = testkit.NewProxy(c.databaseAddr); err != nil {
		return err
	}
	c.redisLink, err = testkit.NewProxy(c.redisAdr)
	return err
}

func (c *cluster) server(name, script string, args ...string) *server {
	return &server{name: name, script: script, args: args, dir: filepath.Join(c.dir, name), native: c.native}
}

// mountDisk mounts a small disk in memory. Only root can do that.
func mountDisk(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return syscall.Mount("orderclose", path, "tmpfs", 0, "size="+diskSize)
}

// connect opens the direct connections, and creates the user of the pipeline. That user has no
// privileges of an administrator, so that a read-only server rejects its writes.
func (c *cluster) connect() (err error) {
	// Each reset connection would be a line on stderr.
	if err := mysql.SetLogger(&mysql.NopLogger{}); err != nil {
		return err
	}
	if c.db, err = sql.Open("mysql", c.dsn("root", c.databaseAddr, "")); err != nil {
		return err
	}
	if _, err = c.db.Exec("CREATE USER pipeline@'%' IDENTIFIED BY ''"); err != nil {
		return err
	}
	c.redisClient = redis.NewClient(&redis.Options{Addr: c.redisAdr})
	return nil
}

// dsn returns the DSN of a database for a user.
func (c *cluster) dsn(user, addr, name string) string {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = user, "tcp", addr, name
	cfg.ParseTime, cfg.Loc, cfg.InterpolateParams = true, time.UTC, true
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = 5*time.Second, 10*time.Second, 10*time.Second
	cfg.Params = map[string]string{"time_zone": "'+00:00'"}
	return cfg.FormatDSN()
}

// linked returns the addresses of the brokers' proxies.
func (c *cluster) linked() (all []string) {
	for _, l := range c.links {
		all = append(all, l.Addr())
	}
	return all
}

// stop stops all servers, by SIGKILL: brokers that are stopped in order wait for a majority.
func (c *cluster) stop() {
	for _, s := range append(c.brokers[:], c.database, c.redis) {
		_ = s.signal(syscall.SIGKILL)
	}
	for _, l := range append(c.links[:], c.databaseLink, c.redisLink) {
		if l != nil {
			_ = l.Close()
		}
	}
}

// start starts the server and returns when it answers.
func (s *server) start(ctx context.Context) error { return s.run(ctx, "start", s.args...) }

// stopInOrder stops the server by SIGTERM.
func (s *server) stopInOrder(ctx context.Context) error { return s.run(ctx, "stop") }

func (s *server) run(ctx context.Context, verb string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*startTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.native, s.script), append([]string{verb, s.dir}, args...)...)
	cmd.Env = append(append(os.Environ(), "ORDERCLOSE_SERVERS=native", fmt.Sprintf("ORDERCLOSE_START_SECONDS=%.0f", startTime.Seconds())), s.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s %s: %w\n%s", s.script, verb, s.name, err, out)
	}
	return nil
}

// pid returns the process id of the server, 0 if it does not run.
func (s *server) pid() int {
	text, err := os.ReadFile(filepath.Join(s.dir, "pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	// The pid may belong to another process now. A process that has ended has no folder.
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || cwd != s.dir && !strings.HasPrefix(cwd, s.dir+"/") {
		return 0
	}
	return pid
}

// signal sends a signal. After SIGKILL it returns when the process has ended.
func (s *server) signal(sig syscall.Signal) error {
	pid := s.pid()
	if pid == 0 {
		return fmt.Errorf("%s does not run", s.name)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	for sig == syscall.SIGKILL && s.pid() == pid {
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// step sets the clock of the server off by d. The server notices within a second.
func (s *server) step(d time.Duration) error {
	text := fmt.Sprintf("%+d\n", int(d/time.Second))
	if err := os.WriteFile(s.clock+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.clock+".new", s.clock)
}

// freePort returns a port that nothing uses, below the kernel's range for the local ends of
// connections, and none of taken.
func freePort(taken []string) (string, error) {
	for range 200 {
		port := strconv.Itoa(10240 + rand.IntN(22000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil || strings.Contains(strings.Join(taken, " "), port) {
			continue
		}
		return port, l.Close()
	}
	return "", fmt.Errorf("no free port between 10240 and 32240")
}
