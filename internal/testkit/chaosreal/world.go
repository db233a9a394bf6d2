//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/topics"
)

// world is one round: a pipeline with its own database and topics on the cluster, a shop, and the faults that disturb them.
type world struct {
	ctx     context.Context
	cluster *cluster
	binary  string // orderclose
	dir     string // of this round: topics.yaml and logs
	prefix  string // of topics and groups; also the name of the database
	cfg     *config.Config
	kafka   *kafka.Cluster // direct
	shop    *shop
	witness *checker.Witness
	parts   map[string][]*process.Process // by role
	logs    []*os.File                    // of the processes

	locks  map[string]*sync.Mutex // by what a fault is on
	began  time.Time
	mu     sync.Mutex
	played []played
	harm   []string // violations that the driver itself has seen
	bursts []*burst
}

// played is a fault that was played.
type played struct {
	Kind     string
	From, To time.Time
	Step     time.Duration // of the clock of the database
	Err      error
}

// roles are the stages. Two processes run each.
var roles = []string{"relay", "closer", "compensator", "outbox"}

// perRole is the number of processes of each stage.
const perRole = 2

// restartAfter is the pause before a process that has ended by itself is started again, as systemd does.
const restartAfter = time.Second

// newWorld creates topics and tables, and starts the processes.
func newWorld(ctx context.Context, c *cluster, binary, dir, prefix string) (w *world, err error) {
	w = &world{ctx: ctx, cluster: c, binary: binary, dir: dir, prefix: prefix, parts: map[string][]*process.Process{}, locks: map[string]*sync.Mutex{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, role := range roles {
		w.locks[role] = &sync.Mutex{}
	}
	if err := w.createDatabase(); err != nil {
		return nil, err
	}
	if err := w.writeConfig(c.topics(scenario.Topics(prefix, len(c.brokers)), c.kind)); err != nil {
		return nil, err
	}
	if w.cfg, err = config.Load(w.file()); err != nil {
		return nil, err
	}
	if w.kafka, err = kafka.New(kafka.Options{Brokers: c.direct, ClientID: "chaos", Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"migrate"}, {"topics", "apply"}} {
		if err := w.eventually(func() error { return w.command(true, args...).Run() }); err != nil {
			return nil, fmt.Errorf("orderclose %v: %w; see %s", args, err, w.logFile("commands"))
		}
	}
	if w.shop, err = newShop(ctx, w); err != nil {
		return nil, err
	}
	w.witness = &checker.Witness{DB: w.shop.db, Query: c.kind.early, Clock: "SELECT " + c.kind.now}
	return w, w.startParts()
}

// database returns the name of the round's database.
func (w *world) database() string { return strings.TrimSuffix(w.prefix, "_") }

// createDatabase creates the round's database, which the user of the pipeline may use.
func (w *world) createDatabase() error {
	if _, err := w.cluster.db.ExecContext(w.ctx, "CREATE DATABASE "+w.database()); err != nil {
		return err
	}
	db, err := w.cluster.open(w.cluster.kind.root, w.database())
	if err != nil {
		return err
	}
	defer db.Close()
	for _, query := range w.cluster.kind.grant(w.database()) {
		if _, err := db.ExecContext(w.ctx, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return w.cluster.createTables(w.ctx, w.cluster.kind, func(ctx context.Context, query string) error {
		_, err := db.ExecContext(ctx, query)
		return err
	})
}

func (w *world) startParts() error {
	for _, role := range roles {
		for n := range perRole {
			name := fmt.Sprintf("%s-%d", role, n+1)
			log, err := os.Create(w.logFile(name))
			if err != nil {
				return err
			}
			w.logs = append(w.logs, log)
			p := &process.Process{Name: name, Restart: restartAfter, Command: func() *exec.Cmd {
				cmd := w.cluster.program(w.command(false, "run", role), n)
				cmd.Stdout, cmd.Stderr = log, log
				return cmd
			}}
			w.parts[role] = append(w.parts[role], p)
			if err := p.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) file() string { return filepath.Join(w.dir, "topics.yaml") }

func (w *world) logFile(name string) string { return filepath.Join(w.dir, name+".log") }

// writeConfig replaces topics.yaml by renaming.
func (w *world) writeConfig(text string) error {
	if err := os.WriteFile(w.file()+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(w.file()+".new", w.file())
}

// command returns a call of the production binary. An administrator's command connects directly, as root; the others connect through the proxies.
func (w *world) command(admin bool, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.ctx, w.binary, append(args, "--config", w.file())...)
	user, database, redis, brokers := "pipeline", w.cluster.databaseLink.Addr(), w.cluster.redisLink.Addr(), w.cluster.linked()
	if admin {
		user, database, redis, brokers = w.cluster.kind.root, w.cluster.database.Addr(), w.cluster.redis.Addr(), w.cluster.direct
		if log, err := os.OpenFile(w.logFile("commands"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			cmd.Stdout, cmd.Stderr = log, log
		}
	}
	dsn := w.cluster.kind.dsn(user, database, w.database(), true)
	cmd.Env = append(os.Environ(),
		environ.EnvBrokers+"="+strings.Join(brokers, ","), environ.EnvDSN+"="+dsn,
		environ.EnvRedis+"=redis://"+redis+"/0", environ.EnvListen+"=127.0.0.1:0")
	if !admin {
		cmd.Env = append(cmd.Env, w.cluster.environ(w.cluster.dir)...)
	}
	return cmd
}

// apply creates missing topics and sets their configuration.
func (w *world) apply() error {
	_, _, err := w.kafka.Apply(w.ctx, topics.Specs(w.cfg))
	return err
}

// tryTime is how long a step of a fault, or of undoing it, is tried. Other faults may prevent it for a while, and a busy machine for minutes.
const tryTime = 5 * time.Minute

// eventually calls try until it succeeds or tryTime is over, and returns its last error.
func (w *world) eventually(try func() error) error {
	for deadline := time.Now().Add(tryTime); ; time.Sleep(200 * time.Millisecond) {
		err := try()
		if err == nil || time.Now().After(deadline) || w.ctx.Err() != nil {
			return err
		}
	}
}

// hold waits for as long as a fault lasts, or until the run is interrupted.
func (w *world) hold(e event) { w.wait(e.For) }

func (w *world) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
	}
}

// violation notes a promise that the driver saw broken.
func (w *world) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.harm = append(w.harm, fmt.Sprintf(format, args...))
}

// playAll plays a schedule and returns when every fault is undone.
func (w *world) playAll(schedule []event, all []kind) {
	byName := map[string]kind{}
	for _, k := range all {
		byName[k.name] = k
		if w.locks[k.on] == nil {
			w.locks[k.on] = &sync.Mutex{}
		}
	}
	var plays sync.WaitGroup
	for _, e := range schedule {
		w.wait(time.Until(w.began.Add(e.At)))
		if w.ctx.Err() != nil {
			break
		}
		plays.Go(func() { w.play(e, byName[e.Kind]) })
	}
	plays.Wait()
}

// maxQueue is how long a fault may wait for earlier faults on the same thing. On a busy machine a
// broker may need a minute to start, and the next fault of a broker waits that long.
const maxQueue = 90 * time.Second

var errQueued = fmt.Errorf("left out: earlier faults on the same thing were not over within %v", maxQueue)

// play plays a fault, once the earlier faults on the same thing are over.
func (w *world) play(e event, k kind) {
	w.locks[k.on].Lock()
	defer w.locks[k.on].Unlock()
	p := played{Kind: k.name, From: time.Now(), Step: k.step}
	if p.From.Sub(w.began) > e.At+maxQueue {
		p.Err = errQueued
	} else {
		p.Err = k.play(w, e)
	}
	p.To = time.Now()
	w.mu.Lock()
	w.played = append(w.played, p)
	n := len(w.played)
	w.mu.Unlock()
	text := "ok"
	if p.Err != nil {
		text = fmt.Sprintf("FAILED: %.300v", p.Err)
	}
	note("%4.0f s  %3d %-26s %5.1f s  %s", p.From.Sub(w.began).Seconds(), n, k.name, p.To.Sub(p.From).Seconds(), text)
}

// close ends what is left of the round, and removes its topics and tables.
func (w *world) close() {
	for _, all := range w.parts {
		for _, p := range all {
			p.Kill()
		}
	}
	for _, log := range w.logs {
		_ = log.Close()
	}
	if w.shop != nil {
		w.shop.close()
	}
	if w.kafka != nil {
		names := scenario.TopicNames(w.cfg)
		synced := w.eventually(func() error { return w.inSync(names...) }) == nil
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if synced { // see recreate
			_ = drop.Topics(ctx, w.kafka, names...)
		}
		_, _ = w.cluster.db.ExecContext(ctx, fmt.Sprintf(w.cluster.kind.drop, w.database()))
		w.kafka.Close()
	}
}
