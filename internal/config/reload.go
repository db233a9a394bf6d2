package config

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quietPeriod is how long the directory must be quiet before the file is read, so that
	// a program that writes the file in several steps has finished.
	quietPeriod = 200 * time.Millisecond
	// pollInterval is how often the file is read without a notification. Some file systems
	// send none.
	pollInterval = time.Minute
)

// ReloadOptions for a Reloader. File, Running and Apply must be set.
type ReloadOptions struct {
	File    string       // the topics.yaml
	Running *Config      // the configuration in use
	Rooms   []AnySection // of the program's rooms
	// Apply applies the configuration to the running parts. It must not block. It is called
	// only if a live setting differs.
	Apply   func(next *Config)
	Hangup  <-chan os.Signal // each signal starts a reload; nil: no signals
	Checked func(ok bool)    // is called with whether the file was accepted, also an unchanged one; may be nil
	Logger  *slog.Logger     // default: discard
}

// Reloader applies a changed file while a process runs. It reads the file when its directory
// changes, on a signal, on request, and once a minute. It checks the whole file before it
// changes anything. A file with a mistake changes nothing: a metric reports it, and the log
// names each mistake with its line. Create it with NewReloader, and run it with Run. It is
// safe for concurrent use.
type Reloader struct {
	o    ReloadOptions
	lock chan struct{} // holds one token; its holder may use the fields below

	running *Config
	seen    []byte // the content that was checked last; nil: none yet
	failed  error  // the error of that check; nil if the content was accepted
}

// NewReloader returns a Reloader.
func NewReloader(o ReloadOptions) *Reloader {
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

// Run watches the file until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	dir := filepath.Dir(r.o.File)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		r.o.Logger.Warn("cannot watch the configuration, polling once a minute", "dir", dir, "err", err)
		watcher = &fsnotify.Watcher{} // never sends an event
	} else {
		defer watcher.Close()
		if err := watcher.Add(dir); err != nil {
			r.o.Logger.Warn("cannot watch the configuration, polling once a minute", "dir", dir, "err", err)
		}
	}
	r.check(ctx, false) // the file may have changed since it was loaded
	every := time.NewTicker(pollInterval)
	defer every.Stop()
	quiet := time.NewTimer(quietPeriod)
	quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-watcher.Events:
			if r.concerns(e.Name) {
				quiet.Reset(quietPeriod)
			}
		case <-quiet.C:
			r.check(ctx, false)
		case err := <-watcher.Errors:
			r.o.Logger.Warn("watching the configuration failed", "dir", dir, "err", err)
			quiet.Reset(quietPeriod)
		case <-every.C:
			if err == nil {
				go watcher.Add(dir) // the directory may have been replaced. Add waits while an error waits for this loop
			}
			r.check(ctx, false)
		case s := <-r.o.Hangup:
			r.o.Logger.Info("asked to reload", "signal", s)
			r.check(ctx, true)
		}
	}
}

// concerns reports whether a changed entry of the directory may be the file: the file
// itself, or the link of a mounted ConfigMap (..data).
func (r *Reloader) concerns(name string) bool {
	base := filepath.Base(name)
	return base == filepath.Base(r.o.File) || strings.HasPrefix(base, "..")
}

// check reads the file and applies it. If asked is false, it skips unchanged content.
func (r *Reloader) check(ctx context.Context, asked bool) ([]Change, error) {
	select {
	case <-r.lock:
		defer func() { r.lock <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	data, err := readTopics(r.o.File)
	again := r.seen != nil && bytes.Equal(data, r.seen) && (err == nil || r.failed != nil && err.Error() == r.failed.Error())
	if again && !asked {
		return nil, r.failed
	}
	repeated := again && r.failed != nil
	var changes []Change
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
	given, err := Parse(r.o.File, data, r.o.Rooms...)
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
		for _, problem := range SplitProblems(err) {
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

// SplitProblems returns the problems in err as separate errors.
func SplitProblems(err error) []error {
	var problems Problems
	if errors.As(err, &problems) {
		return problems.Unwrap()
	}
	return []error{err}
}
