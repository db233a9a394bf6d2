package simulation

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/reload"
	"github.com/orderclose/orderclose/internal/topics"
)

// chaosFile is the topics.yaml of a world with reloads. chaosWorld.mu guards it.
type chaosFile struct {
	path    string
	buckets map[time.Duration]bool // the lengths
	delays  map[string]time.Duration
	broken  []string // the present mistakes
	edits   int
	lists   []orderclose.Buckets // all lists of buckets that the file has ever had
}

// The mistakes of the file.
const (
	noFile     = "no file"
	unknownKey = "unknown key"
	noUnit     = "a length without a unit"
)

func init() {
	kinds["reload"] = kind{weight: 6, draw: func(d *drawing, e *event) {
		e.How = d.among("add", "add", "take away", "take away", "take away", "delay", noFile, unknownKey, noUnit)
		e.What = d.among("1s", "3s", "5s", "20s", "2s", "10s")
		switch e.How {
		case "add":
			e.What = d.among("1s", "3s", "5s", "20s")
			e.Then = d.among("topics first", "topics later")
		case "delay":
			e.What = d.among("flash", "quick", "virtual", "physical")
			e.By = d.span(time.Second, 25*time.Second)
		}
		e.For = d.span(100*time.Millisecond, 15*time.Second) // until the topics are created, or the file is fixed
		e.N = d.IntN(2000)                                   // milliseconds until the last process reads the file
	}, play: (*chaosWorld).reload}
}

// useFile makes the world use a topics.yaml.
func (w *chaosWorld) useFile(t *testing.T) {
	w.file = &chaosFile{path: filepath.Join(t.TempDir(), "topics.yaml"), buckets: map[time.Duration]bool{}, delays: maps.Clone(w.cfg.Delays.ByCategory)}
	for _, b := range w.cfg.Buckets {
		w.file.buckets[b.Length] = true
	}
	w.edit(func(*chaosFile) {})
}

// filePath returns the path of the world's topics.yaml; "" if it is never reloaded.
func (w *chaosWorld) filePath() string {
	if w.file == nil {
		return ""
	}
	return w.file.path
}

// content returns the file without its mistakes.
func (f *chaosFile) content(c *config.Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "accept: [long_smallest_bucket, long_period]\npartitions: %d\ncompensator: {period: %v}\nbuckets:\n", c.Partitions, c.Compensator.Period)
	for _, length := range slices.Sorted(maps.Keys(f.buckets)) {
		fmt.Fprintf(&b, "- %v\n", length)
	}
	fmt.Fprintf(&b, "delays:\n  default: %v\n  categories:\n", chaosDelays.Default)
	for _, category := range sortedKeys(f.delays) {
		fmt.Fprintf(&b, "    %s: %v\n", category, f.delays[category])
	}
	return b.String()
}

// edit changes the file atomically, by a rename. Processes that start from now on use the configuration without the mistakes.
func (w *chaosWorld) edit(change func(f *chaosFile)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.file
	change(f)
	f.edits++
	text := f.content(w.cfg)
	given, err := config.Parse(f.path, []byte(text))
	if err != nil {
		w.violations = append(w.violations, violation{"harness", err.Error()})
		return
	}
	w.cfg = reload.Effective(w.cfg, given)
	f.lists = append(f.lists, w.cfg.Buckets)
	for _, mistake := range f.broken {
		switch mistake {
		case noFile:
			_ = os.Remove(f.path) // fails if another event has removed it
			return
		case unknownKey:
			text += "nonsense: 1\n"
		case noUnit:
			text = strings.Replace(text, "s\ndelays:", "\ndelays:", 1)
		}
	}
	err = os.WriteFile(f.path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(f.path+".new", f.path)
	}
	if err != nil {
		w.violations = append(w.violations, violation{"harness", err.Error()})
	}
}

// reload plays a change of the file. Every process reads the file within two seconds.
func (w *chaosWorld) reload(e event) {
	length, _ := time.ParseDuration(e.What)
	broken := e.How == noFile || e.How == unknownKey || e.How == noUnit
	w.edit(func(f *chaosFile) {
		switch {
		case broken:
			f.broken = append(f.broken, e.How)
		case e.How == "add":
			f.buckets[length] = true
		case e.How == "delay":
			f.delays[e.What] = e.By
		case e.How == "take away" && len(f.buckets) > 1:
			delete(f.buckets, length)
		}
	})
	if e.Then != "topics later" {
		w.applyTopics()
	}
	w.reloadAll(time.Duration(e.N) * time.Millisecond)
	if e.Then != "topics later" && !broken {
		return
	}
	w.hold(e)
	if !broken {
		w.applyTopics()
		return
	}
	w.edit(func(f *chaosFile) {
		at := slices.Index(f.broken, e.How)
		f.broken = slices.Delete(f.broken, at, at+1)
	})
	w.reloadAll(time.Duration(e.N) * time.Millisecond)
}

// applyTopics creates the topics of the present configuration that do not exist.
func (w *chaosWorld) applyTopics() {
	for _, spec := range topics.Specs(w.config()) {
		_ = w.createTopic(spec)
	}
	w.events.Go(func() {
		w.admin(func(c *kafka.Cluster) error { return c.Adopt(w.ctx, topics.Specs(w.config())) })
	})
}

// reloadAll makes the checkout and every process read the file, one after the other.
func (w *chaosWorld) reloadAll(within time.Duration) {
	w.mu.Lock()
	all := []*process{nil} // the checkout
	for _, name := range sortedKeys(w.processes) {
		all = append(all, w.processes[name])
	}
	w.mu.Unlock()
	for i, p := range all {
		w.events.Go(func() {
			wait(w.ctx, within*time.Duration(i)/time.Duration(len(all)))
			if p != nil {
				p.reload()
				return
			}
			w.reloadOne("the checkout", func() error { return w.producer.Reload(w.ctx) })
		})
	}
}

// reload makes a process read the file.
func (p *process) reload() {
	w := p.world
	w.mu.Lock()
	if p.ctx == nil || p.ended || w.file == nil {
		w.mu.Unlock()
		return
	}
	p.reloads.Add(1)
	w.mu.Unlock()
	defer p.reloads.Done()
	accepted := w.reloadOne(p.name, func() error {
		changes, err := p.app.Reload(p.ctx)
		if err != nil && len(changes) > 0 {
			w.violation("broken", "%s rejects the file and applies %v of it: %v", p.name, changes, err)
		}
		return err
	})
	if accepted != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.wants = accepted
	}
}

// reloadOne reads the file and checks the answer, unless the file was edited meanwhile. It returns the buckets of the file if the file was accepted.
func (w *chaosWorld) reloadOne(name string, read func() error) (accepted orderclose.Buckets) {
	edits, broken, buckets := w.fileState()
	err := read()
	if after, _, _ := w.fileState(); after != edits {
		return nil
	}
	problems := config.Problems(nil)
	switch {
	case broken && err == nil:
		w.violation("broken", "%s accepts a file with a mistake", name)
	case !broken && (errors.As(err, &problems) || errors.Is(err, os.ErrNotExist)):
		w.violation("broken", "%s rejects a file without a mistake: %v", name, err)
	}
	if err != nil {
		return nil
	}
	return buckets
}

func (w *chaosWorld) fileState() (edits int, broken bool, buckets orderclose.Buckets) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.file.edits, len(w.file.broken) > 0, w.cfg.Buckets
}

// ever returns all buckets that the world has ever had, each once.
func (w *chaosWorld) ever() (all orderclose.Buckets) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lists := []orderclose.Buckets{w.cfg.Buckets}
	if w.file != nil {
		lists = w.file.lists
	}
	for _, b := range slices.Concat(lists...) {
		if !slices.ContainsFunc(all, func(o orderclose.Bucket) bool { return o.Length == b.Length }) {
			all = append(all, b)
		}
	}
	return all
}

// unsettled returns the processes that do not use the buckets of the file that they last accepted, although the topics exist.
func (w *chaosWorld) unsettled() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range sortedKeys(w.processes) {
		p := w.processes[name]
		if p.app == nil || p.wants == nil || !slices.ContainsFunc(p.roles, picks) || slices.ContainsFunc(p.wants, func(b orderclose.Bucket) bool {
			return len(w.servers.Broker.PartitionInfos(b.Topic)) == 0
		}) {
			continue
		}
		if picked := p.app.ActiveBuckets(); !slices.Equal(picked, p.wants) {
			all = append(all, fmt.Sprintf("%s uses the buckets %v, not %v", name, picked, p.wants))
		}
	}
	return all
}
