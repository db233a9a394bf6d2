//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/power"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// powerKinds cut the power of servers. They need a disk of their own for each server, and no other kind is played beside them.
func powerKinds(v variant) []kind {
	type player = func(w *world, e event) error
	fault := func(name, does string, loses, forgets bool, play player) kind { // loses: also if topics are synced
		return kind{name: "power-" + name, does: does, least: 2 * time.Second, most: 8 * time.Second, on: onPower, needs: needsPower,
			loses: loses, forgets: forgets, play: play}
	}
	cut := func(name, does string, loses, forgets bool, play player) kind {
		return fault(name, does+" loses power: what no server has synced is gone, but for pages that are written back by the seed",
			loses && v.sync != "always", forgets, play)
	}
	full := func(name, whose string, loses, forgets bool, play player) kind {
		return fault(name, "the disk of "+whose+" is filled and then loses power; the space is freed when it is back",
			loses && v.sync != "always", forgets, play)
	}
	all := []kind{
		cut("brokers", "every broker at once", true, false, func(w *world, e event) error { return w.cutPower(e, nil, w.cluster.brokers...) }),
		cut("database", "the database", false, true, func(w *world, e event) error { return w.cutPower(e, nil, w.cluster.database) }),
		cut("redis", "Redis", false, false, func(w *world, e event) error { return w.cutPower(e, nil, w.cluster.redis) }),
		cut("all", "everything at once, with all processes,", true, true, func(w *world, e event) error { return w.cutEverything(e, nil, nil) }),
		full("full-brokers", "every broker", true, false, func(w *world, e event) error { return w.cutFull(e, w.cluster.brokers...) }),
		full("full-database", "the database", false, true, func(w *world, e event) error { return w.cutFull(e, w.cluster.database) }),
	}
	for i := range all {
		all[i].closesOnly = v.synced()
	}
	if v.brokers > 1 {
		return append(all, cut("broker", "one broker", false, false, func(w *world, e event) error {
			return w.cutPower(e, nil, w.cluster.brokers[e.N%uint64(v.brokers)])
		}))
	}
	inBurst := cut("burst", "in the n-th second of the n-th burst of 100,000 orders everything at once, with all processes,", true, true, (*world).cutInBurst)
	inBurst.closesOnly = v.synced()
	bit := fault("flip", "as power-all, and a bit flips in the log of a topic before the broker starts, which deletes the log from there on",
		true, true, (*world).flipRecovered)
	read := fault("flip-read", "as power-all, and a bit flips in a batch that no relay has read, after the broker has started; undone",
		true, true, (*world).flipRead)
	read.flips = true
	return append(all, inBurst, bit, read)
}

// powerDiskSize is the size of the disk of a server. The image takes only the space that is used.
const powerDiskSize = 3 << 30

// powerDisks mounts a disk under the data of each server. Servers have their own defaults of durability.
func (c *cluster) powerDisks(dir string) error {
	c.powered = map[*servers.Server]*power.Disk{}
	c.redis.Args = []string{"--save", "3600 1 300 100 60 10000"} // the default, which redis.sh switches off
	for i, s := range c.servers() {
		data := s.Dir
		if s.Kind == "kafka" {
			data = filepath.Join(s.Dir, "data")
		}
		disk, err := power.New(filepath.Join(dir, fmt.Sprintf("disk-%d", i)), data, powerDiskSize)
		if err != nil {
			return err
		}
		c.powered[s] = disk
	}
	return nil
}

// syncDisks writes the files of servers that have just started to their disks: the scripts that start them sync nothing.
func (c *cluster) syncDisks() error {
	var errs []error
	for _, disk := range c.powered {
		errs = append(errs, disk.Sync())
	}
	return errors.Join(errs...)
}

// cutEverything cuts the power of all servers, and kills all processes of the pipeline. It calls away before the servers start, and up
// before the processes start. Either may be nil.
func (w *world) cutEverything(e event, away, up func() error) error {
	w.killParts()
	errs := []error{w.cutPower(e, away, w.cluster.servers()...)}
	if up != nil {
		errs = append(errs, up())
	}
	for _, role := range roles {
		for _, p := range w.parts[role] {
			errs = append(errs, p.Start())
		}
	}
	return errors.Join(errs...)
}

// killParts kills all processes of the pipeline.
func (w *world) killParts() {
	for _, role := range roles {
		for _, p := range w.parts[role] {
			p.Kill()
		}
	}
}

// cutPower cuts the power of servers at the same time, and lets it return after a while. It calls away, which may be nil, when the disks
// have returned and the servers have not started.
func (w *world) cutPower(e event, away func() error, all ...*servers.Server) error {
	r := rand.New(rand.NewPCG(e.N, 0x90e3))
	for _, s := range all {
		if err := w.cluster.powered[s].WriteBack(r); err != nil {
			return err
		}
	}
	each := func(do func(s *servers.Server) error) error {
		errs := make([]error, len(all))
		var work sync.WaitGroup
		for i, s := range all {
			work.Go(func() { errs[i] = do(s) })
		}
		work.Wait()
		return errors.Join(errs...)
	}
	pids := map[*servers.Server]int{} // the files with the ids cannot be read after a cut
	for _, s := range all {
		pids[s] = s.PID()
	}
	err := each(func(s *servers.Server) error { return w.cluster.powered[s].Cut() })
	err = errors.Join(err, each(func(s *servers.Server) error { return process.KillTree(w.ctx, pids[s]) }),
		each(func(s *servers.Server) error { return w.cluster.powered[s].Return() }))
	w.hold(e)
	if away != nil {
		err = errors.Join(err, away())
	}
	return errors.Join(err, each(w.restart), w.cluster.syncDisks())
}

// cutFull fills the disks of servers for a while, and then cuts their power.
func (w *world) cutFull(e event, all ...*servers.Server) error {
	var frees []func() error
	for _, s := range all {
		free, err := fill(w.cluster.powered[s].Dir)
		if err != nil {
			return err
		}
		frees = append(frees, free)
	}
	w.hold(e)
	return w.cutPower(e, func() (err error) {
		for _, free := range frees {
			if failed := free(); !errors.Is(failed, fs.ErrNotExist) { // a file that was never synced has gone
				err = errors.Join(err, failed)
			}
		}
		return err
	}, all...)
}

const (
	// backAfter is how long after the return of power an order may be closed that is later than lateAtMost.
	backAfter  = time.Minute
	lateAtMost = 30 * time.Second
)

// lateAfterPower returns the orders that were closed too late, long after the power was back.
func (r *round) lateAfterPower() (found []string) {
	for i, p := range r.played {
		until := r.began.Add(r.over + settleTimeForgotten)
		if i+1 < len(r.played) {
			until = r.played[i+1].From
		}
		if p.Kind == powerBurst { // judgeBursts has its limits
			continue
		}
		n, worst := 0, time.Duration(0)
		for _, s := range r.verdict.Samples {
			if (span{p.To.Add(backAfter), until}).has(s.Due.Add(s.Late)) && s.Late > lateAtMost {
				n, worst = n+1, max(worst, s.Late)
			}
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%d orders were closed over %v late, up to %v, more than %v after %s was over", n, lateAtMost, worst, backAfter, p.Kind))
		}
	}
	return found
}

// eventsAgain writes the events of the round again, if a cut of power may have lost some.
func (w *world) eventsAgain(all []kind) error {
	if !w.cluster.power || !w.did(all, func(k kind) bool { return k.loses && !k.closesOnly }) {
		return nil
	}
	before, err := w.judge(all)
	if err != nil {
		return err
	}
	closed := 0
	for _, n := range before.ByPath {
		closed += n
	}
	cmd := w.command(true, "events", "again", "--from", w.began.UTC().Format(time.RFC3339), "--yes", "-o", "json")
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w; see %s", err, w.logFile("commands"))
	}
	var written struct{ Closed int }
	if err := json.Unmarshal(out, &written); err != nil {
		return err
	}
	note("%4.0f s  %d of %d closes had no event; orderclose events again has written %d",
		time.Since(w.began).Seconds(), closed-before.Events, closed, written.Closed)
	w.settle(all)
	return nil
}
