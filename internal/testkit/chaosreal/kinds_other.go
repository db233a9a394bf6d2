//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// redisKinds disturb Redis, and the network to it.
var redisKinds = []kind{
	{name: "kill-redis", does: "Redis by SIGKILL, started again empty", least: time.Second, most: 5 * time.Second, on: onRedis,
		play: func(w *world, e event) error { return w.killed(e, w.cluster.redis) }},
	{name: "freeze-redis", does: "Redis by SIGSTOP, then SIGCONT", least: 2 * time.Second, most: 6 * time.Second, on: onRedis,
		play: func(w *world, e event) error { return w.frozen(e, w.cluster.redis) }},
	{name: "flush-redis", does: "FLUSHALL, three times: a sweep loses its lock", least: time.Second, most: 3 * time.Second, on: onRedis,
		play: func(w *world, e event) error {
			var errs []error
			for range 3 {
				errs = append(errs, w.cluster.redisClient.FlushAll(w.ctx).Err())
				w.wait(e.For / 3)
			}
			return errors.Join(errs...)
		}},
	{name: "redis-no-auth", does: "Redis asks for a password that nobody has; undone", least: 2 * time.Second, most: 5 * time.Second, on: onRedis,
		play: func(w *world, e event) error { return w.redisConfig(e, "requirepass", "nobody knows", "") }},
	{name: "redis-full", does: "Redis accepts no writes, because maxmemory is 1 byte; undone", least: 2 * time.Second, most: 5 * time.Second, on: onRedis,
		play: func(w *world, e event) error { return w.redisConfig(e, "maxmemory", "1", "0") }},
	{name: "lock-stuck", does: "the lock of the sweep is held by nobody and never expires; deleted", least: 4 * time.Second, most: 8 * time.Second, on: onRedis,
		play: func(w *world, e event) error {
			key := w.cfg.Compensator.Lock.Key
			if err := w.cluster.redisClient.Set(w.ctx, key, "nobody", 0).Err(); err != nil {
				return err
			}
			w.hold(e)
			return w.cluster.redisClient.Del(w.ctx, key).Err()
		}},
}

// redisConfig sets a configuration for a while. A connection that was made before a password was set stays authenticated, so it can undo that.
func (w *world) redisConfig(e event, key, value, before string) error {
	conn := w.cluster.redisClient.Conn()
	defer conn.Close()
	if err := conn.ConfigSet(w.ctx, key, value).Err(); err != nil {
		return err
	}
	w.cluster.redisLink.Cut()
	w.hold(e)
	return conn.ConfigSet(w.ctx, key, before).Err()
}

// otherKinds are faults of configuration, and what operators do.
var otherKinds = []kind{
	{name: "config-broken", does: "topics.yaml gets a mistake under the running processes; repaired", least: 2 * time.Second, most: 6 * time.Second, on: onConfig,
		play: func(w *world, e event) error {
			return w.withConfig(e, func(text string) string { return text + "buckets: [banana\n" })
		}},
	{name: "config-wrong", does: "topics.yaml is valid YAML with a bucket of minus one second; repaired",
		least: 2 * time.Second, most: 6 * time.Second, on: onConfig,
		play: func(w *world, e event) error {
			return w.withConfig(e, func(text string) string { return strings.Replace(text, "[1s, 2s, 5s]", "[-1s, 2s, 5s]", 1) })
		}},
	{name: "config-delays", does: "topics.yaml gets another delay and SIGHUP; undone", least: 2 * time.Second, most: 6 * time.Second, on: onConfig,
		play: func(w *world, e event) error {
			return w.withConfig(e, func(text string) string { return strings.Replace(text, "virtual: 5s", "virtual: 4s", 1) })
		}},
	{name: "config-missing", does: "topics.yaml is deleted under the running processes; put back", least: 2 * time.Second, most: 6 * time.Second, on: onConfig,
		play: func(w *world, e event) error {
			text, err := os.ReadFile(w.file())
			if err == nil {
				err = os.Remove(w.file())
			}
			if err != nil {
				return err
			}
			w.hangup()
			w.hold(e)
			return w.writeConfig(string(text))
		}},
	{name: "start-with-bad-config", does: "a closer is restarted while topics.yaml has a mistake: it refuses to start until the file is repaired",
		least: 2 * time.Second, most: 5 * time.Second, on: onConfig,
		play: func(w *world, e event) error {
			w.locks["closer"].Lock()
			defer w.locks["closer"].Unlock()
			p := w.parts["closer"][e.N%perRole]
			return w.withConfigDo(e, func(text string) string { return "bucket: 7\n" + text }, func() { _ = p.End(syscall.SIGTERM, 0); _ = p.Start() })
		}},
	{name: "pause", does: "an operator pauses all closes, and resumes", least: 2 * time.Second, most: 6 * time.Second, on: onOrders,
		play: func(w *world, e event) error {
			return errors.Join(w.admin("pause", "--for", "60s", "--reason", "chaos"), w.then(e), w.admin("resume"))
		}},
	{name: "replay", does: "an operator sends the last half minute of the close topic again", least: time.Second, most: time.Second, on: onOrders,
		play: func(w *world, _ event) error { return w.admin("replay", "--from", "30s", "--yes") }},
	{name: "sweeps-at-once", does: "an operator starts two sweeps at once, beside the compensators",
		least: time.Second, most: time.Second, on: onOrders, play: (*world).sweepsAtOnce},
}

// withConfig replaces topics.yaml for a while.
func (w *world) withConfig(e event, change func(string) string) error {
	return w.withConfigDo(e, change, w.hangup)
}

func (w *world) withConfigDo(e event, change func(string) string, do func()) error {
	text, err := os.ReadFile(w.file())
	if err == nil {
		err = w.writeConfig(change(string(text)))
	}
	if err != nil {
		return err
	}
	do()
	w.hold(e)
	return w.writeConfig(string(text))
}

// hangup sends SIGHUP to each process, which reads its configuration again.
func (w *world) hangup() {
	for _, all := range w.parts {
		for _, p := range all {
			_ = p.Signal(syscall.SIGHUP) // it may just have been killed
		}
	}
}

// then is hold, for a list of steps.
func (w *world) then(e event) error {
	w.hold(e)
	return nil
}

// admin runs a command of an operator, who tries again while other faults prevent it.
func (w *world) admin(args ...string) error {
	return w.eventually(func() error {
		if err := w.command(true, args...).Run(); err != nil {
			return fmt.Errorf("orderclose %v: %w", args, err)
		}
		return nil
	})
}

// sweepsAtOnce starts two sweeps at once. One that finds the lock held, or orders that it could not close, says so by its exit code, and is right.
func (w *world) sweepsAtOnce(event) error {
	var sweeps sync.WaitGroup
	for range 2 {
		sweeps.Go(func() { _ = w.command(true, "compensate").Run() })
	}
	sweeps.Wait()
	return nil
}
