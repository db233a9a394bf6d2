// Package reload applies a changed topics.yaml while a process runs. Changes says which keys differ, and which of them take effect without a
// restart.
package reload

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/config"
)

// pollInterval is how often the file is read.
const pollInterval = 5 * time.Second

// Options of a Reloader. File, Running and Apply must be set.
type Options struct {
	File        string          // the topics.yaml
	ReadOptions []config.Option // how the file is read
	Running     *config.Config  // the configuration in use
	// Apply applies the configuration to the running parts. It must not block. It is called
	// only if a live setting differs.
	Apply   func(next *config.Config)
	Hangup  <-chan os.Signal // each signal starts a reload; nil: no signals
	Checked func(ok bool)    // is called with whether the file was accepted, also an unchanged one; may be nil
	Logger  *slog.Logger     // default: discard
}

// Reloader applies a changed file while a process runs. It reads the file
// every 5 s, on a signal and on request. It checks the whole file before it
// changes anything. A file with a mistake changes nothing: a metric reports it, and the log
// names each mistake with its line. Create it with New, and run it with Run. It is
// safe for concurrent use.
type Reloader struct {
	o    Options
	lock chan struct{} // holds one token; its holder may use the fields below

	running *config.Config
	read    []byte // the content that was read last
	seen    []byte // the content that was checked last; nil: none yet
	failed  error  // the error of that check; nil if the content was accepted
}

// New returns a Reloader.
func New(o Options) *Reloader {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reloader{o: o, lock: make(chan struct{}, 1), running: o.Running}
	r.lock <- struct{}{}
	return r
}

// Reload reads the file and applies it. It returns the changes. If the file is not
// accepted, it returns the error, which may be config.Problems, and changes nothing.
func (r *Reloader) Reload(ctx context.Context) ([]Change, error) { return r.check(ctx, true) }

// Run checks the file at once, since it may have changed since it was loaded, every pollInterval once two reads are equal, and at each signal, until
// ctx ends.
func (r *Reloader) Run(ctx context.Context) {
	every := time.NewTicker(pollInterval)
	defer every.Stop()
	for asked := false; ; {
		r.check(ctx, asked)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			asked = false
		case s := <-r.o.Hangup:
			r.o.Logger.Info("asked to reload", "signal", s)
			asked = true
		}
	}
}

// check reads the file and applies it. If asked is false, it skips unchanged content, and content that differs from the read before.
func (r *Reloader) check(ctx context.Context, asked bool) (changes []Change, err error) {
	select {
	case <-r.lock:
		defer func() { r.lock <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	data, err := config.Read(r.o.File)
	again := r.seen != nil && bytes.Equal(data, r.seen) && (err == nil || r.failed != nil && err.Error() == r.failed.Error())
	settled := r.seen == nil || bytes.Equal(data, r.read) // else the program that writes the file may not have finished
	if r.read = data; !asked && (again || !settled) {
		return nil, r.failed
	}
	repeated := again && r.failed != nil
	if err == nil {
		changes, err = r.apply(ctx, data)
	}
	if err != nil && ctx.Err() != nil { // not recorded: the next check reports it
		return nil, errors.Join(err, ctx.Err())
	}
	recovered := r.failed != nil && err == nil
	r.seen, r.failed = append([]byte{}, data...), err
	r.report(changes, err, repeated && !asked, recovered)
	return changes, err
}

// apply checks the content and applies it.
func (r *Reloader) apply(ctx context.Context, data []byte) ([]Change, error) {
	given, err := config.Parse(r.o.File, data, r.o.ReadOptions...)
	if err != nil {
		return nil, err
	}
	changes := Changes(r.running, given)
	next := Effective(r.running, given)
	if len(Changes(r.running, next)) == 0 {
		return changes, nil
	}
	if err := ctx.Err(); err != nil { // check reports no change after ctx has ended, so apply none
		return nil, err
	}
	r.running = next
	r.o.Apply(next)
	return changes, nil
}

// report reports the result of a check in the log and the metrics.
func (r *Reloader) report(changes []Change, err error, repeated, recovered bool) {
	if r.o.Checked != nil {
		r.o.Checked(err == nil)
	}
	log := r.o.Logger.With("file", r.o.File)
	switch {
	case repeated:
	case err != nil:
		for _, problem := range config.SplitProblems(err) {
			log.Error("configuration rejected, keeping the previous one", "err", problem)
		}
	case len(changes) == 0 && recovered:
		log.Info("configuration valid again, unchanged")
	}
	for _, c := range changes {
		if c.Live {
			log.Info("configuration changed", "key", c.Key, "from", c.From, "to", c.To)
		} else {
			log.Warn("configuration changed; this takes effect at the next start", "key", c.Key, "from", c.From, "to", c.To)
		}
	}
}

// Change is a setting that differs between two configurations.
type Change struct {
	Key  string `json:"key"`  // as in the file, such as delays.categories.virtual or buckets.10s
	From string `json:"from"` // "" if the key was added
	To   string `json:"to"`   // "" if the key was removed
	// Live says that the change takes effect without a restart: a new bucket once its topic exists,
	// any other change at once. If Live is false, the change takes effect at the next start.
	Live bool `json:"live"`
}

// String describes the change in one line.
func (c Change) String() string {
	when := "from now on"
	if !c.Live {
		when = "from the next start on"
	}
	return fmt.Sprintf("%s: %s, was %s; %s", c.Key, cmp.Or(c.To, "none"), cmp.Or(c.From, "none"), when)
}

// Changes compares two configurations, key by key. It is a pure function.
func Changes(from, to *config.Config) []Change {
	before, after := config.Flat(from), config.Flat(to)
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var all []Change
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if before[key] != after[key] {
			all = append(all, Change{Key: key, From: before[key], To: after[key], Live: live(key, from, to)})
		}
	}
	return all
}

// live reports whether a change of the setting takes effect without a restart. Delays and buckets do, and the properties that topics are checked
// against. Rules wait with a changed mapping: they may match by columns that the running one does not read.
func live(key string, from, to *config.Config) bool {
	section, _, _ := strings.Cut(key, ".")
	return slices.Contains([]string{"delays", "buckets", "partitions", "replication", "sync"}, section) &&
		(!strings.HasPrefix(key, "delays.rules[") || reflect.DeepEqual(orders(from), orders(to)))
}

// orders returns what the key orders of a configuration says: a Mapping without Accept, which is a key of its own.
func orders(c *config.Config) any {
	if c.Orders == nil {
		return nil
	}
	m := *c.Orders
	m.Accept = nil
	return m
}

// Effective returns the configuration in effect after a running process reads a new file:
// live settings of the new file, and the running values of all others. Topics of new
// buckets are named by the running pattern. It is a pure function.
func Effective(running, given *config.Config) *config.Config {
	e := *running
	if e.Delays, e.MaxDelay = given.Delays, given.MaxDelay; !live(config.RulePath(0), running, given) {
		e.Delays.Rules = running.Delays.Rules
	}
	e.Partitions, e.Replication, e.Sync = given.Partitions, given.Replication, given.Sync
	e.Buckets = slices.Clone(given.Buckets)
	for i, b := range e.Buckets {
		e.Buckets[i].Topic = e.Topics.OfBucket(b.Length)
	}
	return &e
}
