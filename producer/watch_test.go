package producer

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// fileOf is a topics.yaml that is replaced by a rename, as an editor does.
type fileOf struct {
	t    *testing.T
	path string
}

func (f fileOf) write(content string) {
	f.t.Helper()
	must.Do(f.t, os.WriteFile(f.path+".new", []byte(content), 0o600))
	must.Do(f.t, os.Rename(f.path+".new", f.path))
}

func newFile(t *testing.T, content string) fileOf {
	f := fileOf{t, filepath.Join(t.TempDir(), "topics.yaml")}
	f.write(content)
	return f
}

func (f fileOf) reload(p *Producer) {
	f.t.Helper()
	must.Do(f.t, p.Reload(f.t.Context()))
}

func TestReload_ANewDelayAppliesToNewOrdersOnly(t *testing.T) {
	file := newFile(t, "buckets: [10s, 1m]\ndelays: {categories: {virtual: 5m}}\n")
	p := must.Get(New(Options{Appender: &fakeAppender{}, TopicsFile: file.path}))(t)
	defer p.Close()
	before := p.Order("o", time.UnixMilli(0), "virtual")
	file.write("buckets: [10s, 1m]\ndelays: {categories: {virtual: 7m, new: 1m}, max: 10m, default: 9m}\n")
	file.reload(p)
	expect.Equal(t, p.Order("o", time.UnixMilli(0), "virtual").Due.Sub(before.Due), 2*time.Minute, "the time until it is due")
	expect.Equal(t, p.Order("o", time.UnixMilli(0), "new").Due.UnixMilli(), 60_000, "the delay of the new category in ms")
	err := p.Schedule(t.Context(), orderclose.Order{ID: "o", Due: time.Now().Add(time.Hour)})
	expect.That(t, errors.Is(err, orderclose.ErrDueTooFar), "past the new maximum: %v", err)
	file.write("buckets: [10s, 1m]\ndelays:\n  categories: {virtual: 7m}\n  rules:\n  - {match: {category: virtual}, after: 3m, grace: 1m}\n")
	file.reload(p)
	if o := p.Order("o", time.UnixMilli(0), "virtual"); o.Due.UnixMilli() != 180_000 || o.Deadline.UnixMilli() != 120_000 {
		t.Errorf("with the new rule it is due at %v, and the customer sees %v", o.Due, o.Deadline)
	}
}

func TestReload_AnInvalidFileChangesNothingAndEachMistakeIsNamed(t *testing.T) {
	good := "buckets: [10s, 1m]\ndelays: {categories: {virtual: 5m}}\n"
	file := newFile(t, good)
	var logs strings.Builder
	p, err := New(Options{Appender: &fakeAppender{}, TopicsFile: file.path, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	before := p.live.Load()
	file.write("buckets: [1m]\ndelays: {categories: {virtual: 6m}}\nclosr: {}\npartitions: x\n")
	err = p.Reload(t.Context())
	for _, at := range []string{":3:1: unknown key \"closr\"", ":4:13: partitions"} {
		expect.That(t, err != nil && strings.Contains(err.Error(), at) && strings.Contains(strings.ReplaceAll(logs.String(), `\`, ""), at),
			"no %s in %v, or in the log\n%s", at, err, logs.String())
	}
	expect.Equal(t, p.live.Load(), before, "the settings")
	file.write(good)
	file.reload(p)
	expect.Equal(t, p.live.Load(), before, "the settings after the same content")
}

func TestReload_DoesNotReplaceOptionsThatAreSet(t *testing.T) {
	file := newFile(t, "buckets: [10s, 1m]\n")
	p := must.Get(New(Options{Appender: &fakeAppender{}, TopicsFile: file.path, MaxDelay: time.Hour, Delays: orderclose.Delays{Default: time.Minute}}))(t)
	defer p.Close()
	file.write("buckets: [10s, 1m]\ndelays: {max: 2h, default: 2m}\n")
	file.reload(p)
	r := p.live.Load()
	expect.That(t, r.maxDelay == time.Hour && r.delays.Default == time.Minute, "%+v", r)
}

func TestReload_ANewBucketIsUsedAtOnce(t *testing.T) {
	file := newFile(t, "buckets: [10s, 1m]\n")
	p := must.Get(New(Options{Appender: &fakeAppender{}, TopicsFile: file.path}))(t)
	defer p.Close()
	topic := func() string { return p.Topic(time.Now().Add(5 * time.Minute)) }
	expect.Equal(t, topic(), "delay_1m", "before")
	file.write("buckets: [10s, 5m]\n")
	file.reload(p)
	expect.Equal(t, topic(), "delay_5m", "after")
}

func TestWatch_NoticesEveryWayToReplaceTheFile(t *testing.T) {
	content := func(category string) string {
		return "buckets: [10s, 1m]\ndelays: {categories: {" + category + ": 5m}}\n"
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "topics.yaml")
	// A ConfigMap is mounted like this: topics.yaml -> ..data/topics.yaml, ..data ->
	// ..1.
	mount := func(name, category string) {
		t.Helper()
		for _, err := range []error{
			os.Mkdir(filepath.Join(dir, name), 0o700),
			os.WriteFile(filepath.Join(dir, name, "topics.yaml"), []byte(content(category)), 0o600),
			os.Symlink(name, filepath.Join(dir, "..tmp")),
			os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	mount("..1", "first")
	must.Do(t, os.Symlink("..data/topics.yaml", path))
	p := must.Get(New(Options{Appender: &fakeAppender{}, TopicsFile: path, Watch: true}))(t)
	defer p.Close()
	until := func(category string) {
		t.Helper()
		for t.Context().Err() == nil && p.live.Load().delays.ByCategory[category] == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	mount("..2", "configmap")
	until("configmap")
	fileOf{t, path}.write(content("renamed"))
	until("renamed")
	must.Do(t, os.WriteFile(path, []byte(content("written")), 0o600))
	until("written")
	must.Do(t, os.Remove(path))
	fileOf{t, path}.write(content("again"))
	until("again")
}

// Run it with -race: a call sees one set of rules even if a reload changes them.
func TestReload_ACallSeesOneSetOfRules(t *testing.T) {
	contents := []string{"buckets: [10s]\ndelays: {default: 1m, max: 1m}\n", "buckets: [10s]\ndelays: {default: 1h, max: 1h}\n"}
	file := newFile(t, contents[0])
	p := must.Get(New(Options{Appender: &fakeAppender{}, TopicsFile: file.path}))(t)
	defer p.Close()
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			d := p.Order("o", time.UnixMilli(0), "x").Due.Sub(time.UnixMilli(0))
			expect.That(t, d == time.Minute || d == time.Hour, "a delay of %v", d)
		}
	}()
	for i := range 100 {
		file.write(contents[i%2])
		file.reload(p)
	}
	stop.Store(true)
	<-done
}
