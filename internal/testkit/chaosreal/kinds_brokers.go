//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/testkit"
)

// brokerKinds disturb the brokers, and the network to them.
var brokerKinds = []kind{
	{name: "kill-broker", does: "one broker by SIGKILL, started again", least: 2 * time.Second, most: 6 * time.Second, on: onBrokers,
		play: func(w *world, e event) error { return w.withoutBroker(e, syscall.SIGKILL) }},
	{name: "stop-broker", does: "one broker by SIGTERM, so that it hands its leaders over, started again", least: 2 * time.Second, most: 5 * time.Second, on: onBrokers,
		play: func(w *world, e event) error { return w.withoutBroker(e, syscall.SIGTERM) }},
	{name: "freeze-broker", does: "one broker by SIGSTOP, then SIGCONT", least: 2 * time.Second, most: 6 * time.Second, on: onBrokers, play: (*world).freezeBroker},
	{name: "no-quorum", does: "two brokers by SIGKILL, started again", least: time.Second, most: 4 * time.Second, on: onBrokers, play: (*world).noQuorum},
	{name: "refused-appends", does: "min.insync.replicas is 3 and one broker is stopped, so that every append is refused; both undone", least: 2 * time.Second, most: 5 * time.Second, on: onBrokers, play: (*world).refusedAppends},
	{name: "full-disk-broker", does: "the disk of one broker is filled until it stops; then the space is freed and it is started again", least: 3 * time.Second, most: 6 * time.Second, on: onBrokers, needs: needsDisk, play: (*world).fullBroker},
	{name: "kafka-cut", does: "all connections to the brokers are reset, and new ones refused", least: time.Second, most: 4 * time.Second, on: onNetwork,
		play: func(w *world, e event) error {
			return w.links(e, func(l *testkit.Proxy) { l.Refuse(); l.Cut() })
		}},
	{name: "kafka-resets", does: "connections to the brokers are reset again and again", least: 2 * time.Second, most: 5 * time.Second, on: onNetwork,
		play: func(w *world, e event) error {
			return w.links(e, func(l *testkit.Proxy) {
				l.Set(testkit.ToServer, testkit.ProxyRules{CutAfter: 20_000})
			})
		}},
	{name: "kafka-stall", does: "all connections to the brokers stall", least: 2 * time.Second, most: 6 * time.Second, on: onNetwork,
		play: func(w *world, e event) error { return w.links(e, (*testkit.Proxy).Stall) }},
	{name: "kafka-slow", does: "50 ms in each direction and 2 MB/s to each broker", least: 3 * time.Second, most: 6 * time.Second, on: onNetwork,
		play: func(w *world, e event) error {
			return w.links(e, func(l *testkit.Proxy) {
				for _, d := range []testkit.Direction{testkit.ToServer, testkit.ToClient} {
					l.Set(d, testkit.ProxyRules{Delay: 50 * time.Millisecond, Rate: 2 << 20})
				}
			})
		}},
	{name: "kafka-half-open", does: "the brokers' side of all connections is reset, and the clients do not notice", least: time.Second, most: 2 * time.Second, on: onNetwork,
		play: func(w *world, e event) error { return w.links(e, func(l *testkit.Proxy) { l.HalfOpen() }) }},
	{name: "one-broker-cut", does: "one broker cannot be reached by clients, and leads its partitions on", least: 2 * time.Second, most: 6 * time.Second, on: onNetwork,
		play: func(w *world, e event) error {
			l := w.cluster.links[e.N%3]
			l.Refuse()
			l.Cut()
			w.hold(e)
			l.Heal()
			return nil
		}},
}

// links does something to all connections to the brokers, and heals them.
func (w *world) links(e event, do func(*testkit.Proxy)) error {
	for _, l := range w.cluster.links {
		do(l)
	}
	w.hold(e)
	for _, l := range w.cluster.links {
		l.Heal()
	}
	return nil
}

func (w *world) withoutBroker(e event, sig syscall.Signal) error {
	b := w.cluster.brokers[e.N%3]
	if err := w.endServer(b, sig); err != nil {
		return err
	}
	w.hold(e)
	return w.restart(b)
}

// endServer ends a server, by SIGTERM or SIGKILL.
func (w *world) endServer(s *server, sig syscall.Signal) error {
	if sig == syscall.SIGTERM {
		return s.stopInOrder(w.ctx)
	}
	return s.signal(sig)
}

// restart starts a server that was ended. The start may fail, as when a broker dies again because
// it does not know yet that its disk has room.
func (w *world) restart(s *server) error {
	return w.eventually(func() error {
		if s.pid() != 0 {
			return nil
		}
		return s.start(w.ctx)
	})
}

func (w *world) freezeBroker(e event) error {
	b := w.cluster.brokers[e.N%3]
	if err := b.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	w.hold(e)
	return b.signal(syscall.SIGCONT)
}

func (w *world) noQuorum(e event) error {
	first, second := w.cluster.brokers[e.N%3], w.cluster.brokers[(e.N+1)%3]
	err := errors.Join(first.signal(syscall.SIGKILL), second.signal(syscall.SIGKILL))
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
	err := w.withoutBroker(e, syscall.SIGTERM)
	return errors.Join(err, w.configureTopics("min.insync.replicas", "2"))
}

// configureTopics sets a configuration of all topics of the pipeline.
func (w *world) configureTopics(key, value string) error {
	var names []string
	for _, spec := range ops.TopicSpecs(w.cfg) {
		names = append(names, spec.Name)
	}
	return w.eventually(func() error { return w.alterConfigs(key, value, names...) })
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
	free, err := fill(filepath.Join(b.dir, "data"))
	if err != nil {
		return err
	}
	w.hold(e)
	if err := free(); err != nil {
		return err
	}
	// A broker whose only disk has failed stops by itself. One that is still stopping, or had
	// nothing to write, is ended as an operator would.
	if b.pid() != 0 {
		if err := b.signal(syscall.SIGKILL); err != nil && b.pid() != 0 {
			return fmt.Errorf("after a full disk: %w", err)
		}
	}
	return w.restart(b)
}

// stepped sets the clock of a server off for a while.
func (w *world) stepped(e event, s *server, by time.Duration) error {
	if err := s.step(by); err != nil {
		return err
	}
	w.hold(e)
	err := s.step(0)
	w.wait(1500 * time.Millisecond) // the server reads its clock's file once a second
	return err
}
