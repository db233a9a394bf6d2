//go:build linux

package main

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"
)

// processKinds disturb processes of the pipeline.
var processKinds = slices.Concat(
	perRoleKinds("kill", "one process by SIGKILL, started again", time.Second, 4*time.Second, (*world).killOne),
	perRoleKinds("freeze", "one process by SIGSTOP, for longer than its session may be silent, then SIGCONT", 7*time.Second, 9*time.Second, (*world).freezeOne),
	[]kind{
		{name: "kill-both-relays", does: "both relays by SIGKILL, started again", least: time.Second, most: 3 * time.Second, on: "relay",
			play: func(w *world, e event) error { return w.endBoth(e, "relay", syscall.SIGKILL) }},
		{name: "kill-both-closers", does: "both closers by SIGKILL, started again", least: time.Second, most: 3 * time.Second, on: "closer",
			play: func(w *world, e event) error { return w.endBoth(e, "closer", syscall.SIGKILL) }},
		{name: "restart-all", does: "every process by SIGTERM one after another, each started again at once", on: "relay", least: time.Second, most: time.Second,
			play: (*world).restartAll},
	},
)

// perRoleKinds returns a kind for each stage.
func perRoleKinds(name, does string, least, most time.Duration, play func(w *world, e event, role string) error) (all []kind) {
	for _, role := range roles {
		all = append(all, kind{name: name + "-" + role, does: does, least: least, most: most, on: role,
			play: func(w *world, e event) error { return play(w, e, role) }})
	}
	return all
}

func (w *world) killOne(e event, role string) error {
	p := w.parts[role][e.N%perRole]
	p.end(syscall.SIGKILL)
	w.hold(e)
	p.start()
	return nil
}

func (w *world) freezeOne(e event, role string) error {
	p := w.parts[role][e.N%perRole]
	p.signal(syscall.SIGSTOP)
	w.hold(e)
	p.signal(syscall.SIGCONT)
	return nil
}

// endBoth ends both processes of a stage and starts them again.
func (w *world) endBoth(e event, role string, sig syscall.Signal) error {
	var ends sync.WaitGroup
	for _, p := range w.parts[role] {
		ends.Go(func() { p.end(sig) })
	}
	ends.Wait()
	w.hold(e)
	for _, p := range w.parts[role] {
		p.start()
	}
	return nil
}

// restartAll is a rolling restart. Other stages may be disturbed meanwhile, so it takes their
// locks one after another.
func (w *world) restartAll(event) error {
	var errs []error
	for _, role := range roles {
		if role != "relay" { // locked by play
			w.locks[role].Lock()
		}
		for _, p := range w.parts[role] {
			errs = append(errs, p.stopInOrder())
			p.start()
		}
		if role != "relay" {
			w.locks[role].Unlock()
		}
	}
	return errors.Join(errs...)
}
