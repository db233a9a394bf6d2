//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// brokerKinds disturb the brokers, and the network to them.
var brokerKinds = []kind{
	{name: "kill-broker", does: "one broker by SIGKILL, started again", least: 2 * time.Second, most: 6 * time.Second, on: onBrokers,
		play: func(w *world, e event) error { return w.killed(e, w.cluster.brokers[e.N%3]) }},
	{name: "stop-broker", does: "one broker by SIGTERM, so that it hands its leaders over, started again",
		least: 2 * time.Second, most: 5 * time.Second, on: onBrokers,
		play: (*world).withoutBroker},
	{name: "freeze-broker", does: "one broker by SIGSTOP, then SIGCONT", least: 2 * time.Second, most: 6 * time.Second, on: onBrokers,
		play: func(w *world, e event) error { return w.frozen(e, w.cluster.brokers[e.N%3]) }},
	{name: "no-quorum", does: "two brokers by SIGKILL, started again", least: time.Second, most: 4 * time.Second, on: onBrokers, play: (*world).noQuorum},
	{name: "refused-appends", does: "min.insync.replicas is 3 and one broker is stopped, so that every append is refused; both undone",
		least: 2 * time.Second, most: 5 * time.Second, on: onBrokers, play: (*world).refusedAppends},
	{name: "full-disk-broker", does: "the disk of one broker is filled until it stops; then the space is freed and it is started again",
		least: 3 * time.Second, most: 6 * time.Second, on: onBrokers, needs: needsDisk, play: (*world).fullBroker},
	{name: "one-broker-cut", does: "one broker cannot be reached by clients, and leads its partitions on",
		least: 2 * time.Second, most: 6 * time.Second, on: onNetwork,
		play: func(w *world, e event) error {
			return w.disturb(e, (*testkit.Proxy).Disconnect, w.cluster.links[e.N%3])
		}},
}

// disturb does something to the connections through proxies, and heals them.
func (w *world) disturb(e event, do func(*testkit.Proxy), links ...*testkit.Proxy) error {
	for _, l := range links {
		do(l)
	}
	w.hold(e)
	for _, l := range links {
		l.Heal()
	}
	return nil
}

// networkKinds disturb the network to each kind of server.
var networkKinds = slices.Concat(
	networkTo("kafka", "the brokers", onNetwork, 20_000, func(c *cluster) []*testkit.Proxy { return c.links }),
	networkTo("database", "the database", onLink, 2000, func(c *cluster) []*testkit.Proxy { return []*testkit.Proxy{c.databaseLink} }),
	networkTo("redis", "Redis", "network to Redis", 2000, func(c *cluster) []*testkit.Proxy { return []*testkit.Proxy{c.redisLink} }),
)

func networkTo(name, server, on string, bytes int, links func(*cluster) []*testkit.Proxy) (all []kind) {
	for _, f := range testkit.NetworkFaults {
		all = append(all, kind{name: name + "-" + f.Name, does: fmt.Sprintf(f.Does, server), least: time.Second, most: 5 * time.Second, on: on,
			play: func(w *world, e event) error {
				return w.disturb(e, func(l *testkit.Proxy) { f.Begin(l, bytes) }, links(w.cluster)...)
			}})
	}
	return all
}

// loseCommits loses several commits, or their answers.
func loseCommits(next func(*testkit.Proxy)) func(*testkit.Proxy) {
	return func(l *testkit.Proxy) {
		for range 6 {
			next(l)
		}
	}
}

// killed kills a server and starts it again.
func (w *world) killed(e event, s *servers.Server) error {
	if err := s.Kill(); err != nil {
		return err
	}
	w.hold(e)
	return w.restart(s)
}

// frozen stops a server and its child processes by SIGSTOP for a while.
func (w *world) frozen(e event, s *servers.Server) error {
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	children := process.Tree(s.PID())[1:] // it starts no more of them
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	}
	w.hold(e)
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	return s.Signal(syscall.SIGCONT)
}

// withoutBroker stops a broker in order and starts it again.
func (w *world) withoutBroker(e event) error {
	b := w.cluster.brokers[e.N%3]
	if err := b.Stop(w.ctx); err != nil {
		return err
	}
	w.hold(e)
	return w.restart(b)
}

// restart starts a server that was ended. The start may fail, as when a broker dies again because it does not know yet that its disk has room.
func (w *world) restart(s *servers.Server) error {
	return w.eventually(func() error { return s.Restart(w.ctx) })
}

func (w *world) noQuorum(e event) error {
	first, second := w.cluster.brokers[e.N%3], w.cluster.brokers[(e.N+1)%3]
	err := servers.KillAll(first, second)
	w.hold(e)
	// Together: alone, the first finds no majority and does not come up.
	up := make(chan error, 1)
	go func() { up <- w.restart(first) }()
	return errors.Join(err, w.restart(second), <-up)
}

func (w *world) refusedAppends(e event) error {
	if err := w.configureTopics("min.insync.replicas", "3"); err != nil {
		return err
	}
	err := w.withoutBroker(e)
	return errors.Join(err, w.configureTopics("min.insync.replicas", "2"))
}

// configureTopics sets a configuration of all topics of the pipeline.
func (w *world) configureTopics(key, value string) error {
	return w.eventually(func() error { return w.alterConfigs(key, value, scenario.TopicNames(w.cfg)...) })
}

// fill fills the disk on which a folder is, and returns a function that frees the space.
func fill(folder string) (free func() error, err error) {
	path := filepath.Join(folder, "filler")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for piece := int64(64 << 20); piece >= 4096; {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if syscall.Fallocate(int(f.Fd()), 0, info.Size(), piece) != nil {
			piece /= 4
		}
	}
	return func() error { return os.Remove(path) }, nil
}

func (w *world) fullBroker(e event) error {
	b := w.cluster.brokers[e.N%3]
	free, err := fill(filepath.Join(b.Dir, "data"))
	if err != nil {
		return err
	}
	w.hold(e)
	if err := free(); err != nil {
		return err
	}
	// A broker whose only disk has failed stops by itself. One that is still stopping, or had nothing to write, is ended as an operator would.
	if err := b.Kill(); err != nil {
		return fmt.Errorf("after a full disk: %w", err)
	}
	return w.restart(b)
}

// stepped sets the clock of the database off for a while.
func (w *world) stepped(e event, by time.Duration) error {
	if err := w.cluster.step(by); err != nil {
		return err
	}
	w.hold(e)
	err := w.cluster.step(0)
	w.wait(1500 * time.Millisecond) // the server reads its clock's file once a second
	return err
}
