// Package reload takes up a changed topics.yaml while a process runs.
//
// A Reloader reads the file when its directory changes, on a signal, when it is
// asked, and once a minute. The file is checked whole before anything that runs is
// touched, and taken whole or not at all: with one mistake in it everything stays
// as it is, a metric says so, and the log has each mistake with its line. What
// differs, and what of that takes effect without a restart, is decided by pure
// functions (changes.go).
//
// A changed list of buckets is picked from some time after it was read (adopt.go):
// by then each of its topics must be there, and every relay have read the same file.
package reload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"orderclose/internal/config"
)

const (
	// calm is how long the directory must be quiet before the file is read: whoever
	// writes a file in several steps has finished by then.
	calm = 200 * time.Millisecond
	// lookEvery is how often the file is read without any notice: directories of some
	// kinds give none, and what was refused because of the world may be right by now.
	lookEvery = time.Minute
)

// Options for a Reloader. File, Running and Take must be set.
type Options struct {
	File    string         // the topics.yaml
	Running *config.Config // what holds now
	// May refuses a configuration that is right by itself, because of how the world
	// is. Default: nothing is refused.
	May func(ctx context.Context, next *config.Config) error
	// Take makes what runs work by the configuration. It must not block. It is called
	// only if something that is live differs.
	Take    func(next *config.Config)
	Hangup  <-chan os.Signal // a signal asks for a reload; nil: none does
	Metrics Metrics          // default: none
	Logger  *slog.Logger     // default: discard
}

// Metrics takes how reloading went.
type Metrics interface {
	// ConfigReloaded says that the file was taken, or is as it was; or that it was not
	// taken.
	ConfigReloaded(ok bool)
}

// Reloader keeps what runs as the file says. Make it with New.
type Reloader struct {
	o    Options
	turn chan struct{} // holds one token; who has it may touch what is below

	running *config.Config
	seen    []byte // the content that was judged last
	failed  error  // what was wrong with it
	world   bool   // it was the world that refused it, which may change its mind
}

// New returns a Reloader.
func New(o Options) (*Reloader, error) {
	if o.File == "" || o.Running == nil || o.Take == nil {
		return nil, errors.New("reload: Options need File, Running and Take")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reloader{o: o, turn: make(chan struct{}, 1), running: o.Running}
	r.turn <- struct{}{}
	return r, nil
}

// Reload reads the file and takes what it says. It returns what has changed; or
// why the file was not taken, which may be config.Problems, and then nothing has.
func (r *Reloader) Reload(ctx context.Context) ([]Change, error) { return r.look(ctx, true) }

// Run watches the file until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	dir := filepath.Dir(r.o.File)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		r.o.Logger.Warn("changes of the configuration are noticed after a minute only", "dir", dir, "err", err)
		watcher = &fsnotify.Watcher{} // nothing comes
	} else {
		defer watcher.Close()
		if err := watcher.Add(dir); err != nil {
			r.o.Logger.Warn("changes of the configuration are noticed after a minute only", "dir", dir, "err", err)
		}
	}
	r.look(ctx, false) // what has changed since it was loaded
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	quiet := time.NewTimer(calm)
	quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-watcher.Events:
			if r.concerns(e.Name) {
				quiet.Reset(calm)
			}
		case <-quiet.C:
			r.look(ctx, false)
		case err := <-watcher.Errors:
			r.o.Logger.Warn("watching the configuration", "dir", dir, "err", err)
			quiet.Reset(calm)
		case <-every.C:
			if err == nil {
				watcher.Add(dir) // the directory may be another one by now; again is harmless
			}
			r.look(ctx, false)
		case s := <-r.o.Hangup:
			r.o.Logger.Info("asked to reload", "signal", s)
			r.look(ctx, true)
		}
	}
}

// concerns says whether something that changed in the directory may be the file:
// itself, or what a mounted ConfigMap has it linked to (..data).
func (r *Reloader) concerns(name string) bool {
	base := filepath.Base(name)
	return base == filepath.Base(r.o.File) || strings.HasPrefix(base, "..")
}

// look reads the file and takes it. Unless somebody asked for it, a content that
// was judged before is left alone.
func (r *Reloader) look(ctx context.Context, asked bool) ([]Change, error) {
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	data, err := os.ReadFile(r.o.File)
	if err != nil {
		err = fmt.Errorf("the configuration cannot be read; name the right topics.yaml: %w", err)
	}
	again := r.seen != nil && bytes.Equal(data, r.seen) && (err == nil || r.failed != nil && err.Error() == r.failed.Error())
	if again && !asked && !r.world {
		return nil, r.failed
	}
	known := again && r.failed != nil
	var changes []Change
	r.world = false
	if err == nil {
		changes, err = r.take(ctx, data)
	}
	if err != nil && ctx.Err() != nil { // whoever asks next hears of it
		return nil, errors.Join(err, ctx.Err())
	}
	recovered := r.failed != nil && err == nil
	r.seen, r.failed = append([]byte{}, data...), err
	r.tell(changes, err, known && !asked, recovered)
	return changes, err
}

// take judges the content, and if nothing is wrong with it lets it hold.
func (r *Reloader) take(ctx context.Context, data []byte) ([]Change, error) {
	given, err := config.Parse(r.o.File, data)
	if err != nil {
		return nil, err
	}
	changes := Changes(r.running, given)
	next := Effective(r.running, given)
	if len(Changes(r.running, next)) == 0 {
		return changes, nil
	}
	if r.o.May != nil {
		if err := r.o.May(ctx, next); err != nil {
			r.world = true
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil { // what is taken is told
		return nil, err
	}
	r.running = next
	r.o.Take(next)
	return changes, nil
}

// tell says in log and metrics what became of a file.
func (r *Reloader) tell(changes []Change, err error, known, recovered bool) {
	if r.o.Metrics != nil {
		r.o.Metrics.ConfigReloaded(err == nil)
	}
	log := r.o.Logger.With("file", r.o.File)
	switch {
	case known:
	case err != nil:
		for _, problem := range Problems(err) {
			log.Error("the configuration is not taken, what was before stays", "err", problem)
		}
	case len(changes) == 0 && recovered:
		log.Info("the configuration is right again, and as it was")
	}
	for _, c := range changes {
		if c.Live {
			log.Info("configuration changed", "key", c.Key, "from", c.From, "to", c.To)
		} else {
			log.Warn("configuration changed; this takes effect at the next start", "key", c.Key, "from", c.From, "to", c.To)
		}
	}
}

// Problems returns what is wrong, one by one.
func Problems(err error) []error {
	var problems config.Problems
	if errors.As(err, &problems) {
		return problems.Unwrap()
	}
	return []error{err}
}
