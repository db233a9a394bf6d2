//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// processKinds disturb processes of the pipeline.
var processKinds = slices.Concat(
	perRoleKinds("kill", "one process by SIGKILL, started again", time.Second, 4*time.Second, (*world).killOne),
	perRoleKinds("freeze", "one process by SIGSTOP, for longer than its session may be silent, then SIGCONT", 7*time.Second, 9*time.Second, (*world).freezeOne),
	[]kind{
		{name: "kill-both-relays", does: "both relays by SIGKILL, started again", least: time.Second, most: 3 * time.Second, on: "relay",
			play: func(w *world, e event) error { return w.killBoth(e, "relay") }},
		{name: "kill-both-closers", does: "both closers by SIGKILL, started again", least: time.Second, most: 3 * time.Second, on: "closer",
			play: func(w *world, e event) error { return w.killBoth(e, "closer") }},
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
	p.Kill()
	w.hold(e)
	return p.Start()
}

func (w *world) freezeOne(e event, role string) error {
	p := w.parts[role][e.N%perRole]
	_ = p.Signal(syscall.SIGSTOP) // it may have ended by itself a moment ago
	w.hold(e)
	_ = p.Signal(syscall.SIGCONT)
	return nil
}

// killBoth kills both processes of a stage and starts them again.
func (w *world) killBoth(e event, role string) error {
	for _, p := range w.parts[role] {
		p.Kill()
	}
	w.hold(e)
	var errs []error
	for _, p := range w.parts[role] {
		errs = append(errs, p.Start())
	}
	return errors.Join(errs...)
}

// stopLimit is how long a process may take to end in order.
const stopLimit = 10 * time.Second

// restartAll is a rolling restart. Other stages may be disturbed meanwhile, so it takes their locks one after another.
func (w *world) restartAll(event) error {
	var errs []error
	for _, role := range roles {
		if role != "relay" { // locked by play
			w.locks[role].Lock()
		}
		for _, p := range w.parts[role] {
			stopped := time.Now()
			_ = p.End(syscall.SIGTERM, 0) // a process that cannot connect may exit with an error
			if took := time.Since(stopped); took > stopLimit+3*time.Second {
				errs = append(errs, fmt.Errorf("%s took %v to stop", p.Name, took.Round(time.Millisecond)))
			}
			errs = append(errs, p.Start())
		}
		if role != "relay" {
			w.locks[role].Unlock()
		}
	}
	return errors.Join(errs...)
}
