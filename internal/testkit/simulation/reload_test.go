package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
	"github.com/orderclose/orderclose/internal/topics"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/producer"
)

// topicsFile is a topics.yaml that tests edit.
type topicsFile struct {
	path    string
	delays  map[string]time.Duration
	buckets map[time.Duration]bool // the lengths
}

func (f *topicsFile) content() string {
	var b strings.Builder
	b.WriteString("accept: [long_smallest_bucket]\npartitions: 2\ncompensator: {period: 2m}\nbuckets:\n")
	for _, length := range slices.Sorted(maps.Keys(f.buckets)) {
		fmt.Fprintf(&b, "- %v\n", length)
	}
	b.WriteString("delays:\n  default: 40s\n  categories:\n")
	for _, category := range slices.Sorted(maps.Keys(f.delays)) {
		fmt.Fprintf(&b, "    %s: %v\n", category, f.delays[category])
	}
	return b.String()
}

func (f *topicsFile) write(t *testing.T, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(f.path, []byte(content), 0o600))
}

func newTopicsFile(t *testing.T) *topicsFile {
	f := &topicsFile{
		path:    filepath.Join(t.TempDir(), "topics.yaml"),
		delays:  map[string]time.Duration{"flash": 2 * time.Second, "quick": 10 * time.Second, "virtual": time.Minute, "physical": 95 * time.Second},
		buckets: map[time.Duration]bool{time.Second: true, 10 * time.Second: true, time.Minute: true},
	}
	f.write(t, f.content())
	return f
}

// simulateWithFile is simulate with parts and a producer that read the file.
func simulateWithFile(t *testing.T, f *topicsFile, test func(ctx context.Context, r *rig)) {
	t.Helper()
	cfg := must.Get(config.Load(f.path))(t)
	simulate(t, cfg, func(ctx context.Context, r *rig) {
		r.file = f.path
		p := must.Get(producer.New(producer.Options{Appender: r.kafka.Appender, TopicsFile: f.path}))(t)
		defer p.Close()
		r.shop.Producer = p
		test(ctx, r)
	})
}

// mustReload makes every part, and the producer, read the file.
func (r *rig) mustReload() {
	r.t.Helper()
	for role := range r.stops {
		must.Get(r.apps[role].Reload(r.t.Context()))(r.t)
	}
	must.Do(r.t, r.shop.Producer.Reload(r.t.Context()))
}

// apply creates the topics of the file.
func (r *rig) apply() {
	r.t.Helper()
	cfg, err := config.Load(r.file)
	if err == nil {
		_, _, err = r.kafka.Apply(r.t.Context(), topics.Specs(cfg))
	}
	expect.NoError(r.t, err)
}

func TestSimulation_ABucketIsAddedAndTakenOut(t *testing.T) {
	ring.NotShort(t)
	f := newTopicsFile(t)
	simulateWithFile(t, f, func(ctx context.Context, r *rig) {
		r.startStable()
		picked := func(length time.Duration, want bool) { // checks each part
			t.Helper()
			for _, role := range picking {
				a := r.apps[role]
				if slices.ContainsFunc(a.ActiveBuckets(), func(b orderclose.Bucket) bool { return b.Length == length }) != want {
					t.Errorf("%s picks from %v; want %v among them: %v", role, a.ActiveBuckets(), length, want)
				}
			}
		}
		closed := 0
		order := func(n int, category string) {
			for i := range n {
				r.order(fmt.Sprintf("%s-%d-%d", category, closed, i), category, true)
			}
			closed += n
		}
		f.buckets[90*time.Second] = true
		f.write(t, f.content())
		r.mustReload()
		time.Sleep(4 * time.Minute)
		picked(90*time.Second, false)
		order(4, "physical") // the topic does not exist: through the old buckets
		time.Sleep(3 * time.Minute)
		r.apply()
		time.Sleep(time.Minute + time.Second)
		expect.Equal(t, r.inTopic("delay_1m30s"), 0, "records in a topic that did not exist")
		picked(90*time.Second, true)
		order(4, "physical")
		expect.Equal(t, r.inTopic("delay_1m30s"), 4, "records in the new bucket")

		delete(f.buckets, 90*time.Second)
		f.write(t, f.content())
		r.mustReload() // while four records wait there
		time.Sleep(time.Second)
		picked(90*time.Second, false)
		order(4, "physical")
		time.Sleep(30 * time.Second)
		r.stop(pipeline.Relay)
		without := mustLoad(t, f.path)
		with := r.cfg
		r.cfg = without
		r.start(pipeline.Relay)
		time.Sleep(3 * time.Minute)
		expect.Equal(t, r.inTopic("delay_1m30s"), 4, "records in the bucket that was taken out")
		r.cfg, r.disturbed = with, true
		if v := r.check(time.Now()); v.ByPath["pipeline"] != closed || v.Quantile(1) != 0 {
			t.Errorf("closed %v, the latest %v late; want all %d by the pipeline, none late", v.ByPath, v.Quantile(1), closed)
		}
	})
}

func mustLoad(t *testing.T, path string) *config.Config {
	t.Helper()
	c := must.Get(config.Load(path))(t)
	return c
}

// TestSimulation_AnUnlistedDelayTopicIsServed: relays have not read the topics.yaml of topics apply yet, before a start or while they run.
func TestSimulation_AnUnlistedDelayTopicIsServed(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"before a start": false, "while it runs": true} {
		t.Run(name, func(t *testing.T) {
			f := newTopicsFile(t)
			simulateWithFile(t, f, func(ctx context.Context, r *rig) {
				if running {
					r.startPipeline()
				}
				f.buckets[4*time.Minute] = true
				f.write(t, f.content())
				r.apply()
				o := r.orderOf("new", time.Now().Add(10*time.Minute), "physical")
				r.publish(ctx, "delay_4m", wire.Record{Order: o, Release: o.Due})
				if !running {
					r.startPipeline()
				}
				time.Sleep(15 * time.Minute)
				r.mostAppends = 15 // one for each minute, and those until the first
				v := r.check(time.Now())
				expect.That(t, v.ByPath["pipeline"] == 1 && v.Quantile(1) == 0, "closed %v, the latest %v late", v.ByPath, v.Quantile(1))
			})
		})
	}
}

// TestSimulation_AnUnreadableCommitDelaysNoNewBucket: the commits of the group of an unlisted delay topic cannot be read.
func TestSimulation_AnUnreadableCommitDelaysNoNewBucket(t *testing.T) {
	ring.NotShort(t)
	f := newTopicsFile(t)
	simulateWithFile(t, f, func(ctx context.Context, r *rig) {
		r.startStable()
		unlisted := orderclose.Bucket{Topic: "delay_4m", Length: 4 * time.Minute}
		group := r.cfg.RelayGroup(unlisted)
		r.world.Broker.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.world.Broker.KeepControl()
			asked := req.(*kmsg.OffsetFetchRequest)
			if asked.Group != group && !slices.ContainsFunc(asked.Groups, func(g kmsg.OffsetFetchRequestGroup) bool { return g.Group == group }) {
				return nil, nil, false
			}
			return nil, errors.New("the connection breaks"), true
		})
		spec := topics.Specs(r.cfg)[0]
		spec.Name, spec.Adopt = unlisted.Topic, false
		r.create([]kafka.TopicSpec{spec})
		time.Sleep(2 * time.Minute)
		f.buckets[90*time.Second] = true
		f.write(t, f.content())
		r.apply()
		r.mustReload()
		time.Sleep(3 * time.Minute)
		for i := range 4 {
			r.order(fmt.Sprint("o", i), "physical", true)
		}
		time.Sleep(3 * time.Minute)
		r.cfg = mustLoad(t, f.path)
		if v := r.check(time.Now()); v.ByPath["pipeline"] != 4 || v.Quantile(1) != 0 {
			t.Errorf("closed %v, the latest %v late; want all 4 by the pipeline, none late", v.ByPath, v.Quantile(1))
		}
	})
}

// TestSimulation_ATopicOfAnotherTeamIsNotServed: its name is that of a bucket, by chance.
func TestSimulation_ATopicOfAnotherTeamIsNotServed(t *testing.T) {
	simulateWithFile(t, newTopicsFile(t), func(ctx context.Context, r *rig) {
		spec := topics.Specs(r.cfg)[0]
		spec.Name, spec.Adopt = "delay_4m", false
		r.create([]kafka.TopicSpec{spec})
		must.Get(r.kafka.Append(ctx, "delay_4m", 0, []wire.Message{{Key: []byte("job-1"), Value: []byte(`{"job":"resize"}`)}}))(t)
		r.startPipeline()
		time.Sleep(10 * time.Minute)
		_, dead, err := r.kafka.Bounds(ctx, r.cfg.Topics.DeadLetter, 0)
		expect.That(t, err == nil && dead <= 0, "%d records of another team became dead letters, %v", dead, err)
	})
}

func TestSimulation_PostReloadReportsChangesOrMistakes(t *testing.T) {
	f := newTopicsFile(t)
	simulateWithFile(t, f, func(ctx context.Context, r *rig) {
		r.start(pipeline.Closer)
		post := func(method string) (int, string) {
			w := httptest.NewRecorder()
			r.apps[pipeline.Closer].Handler(false).ServeHTTP(w, httptest.NewRequest(method, "/-/reload", nil))
			return w.Code, w.Body.String()
		}
		want := func(code int, body string) {
			t.Helper()
			gotCode, got := post("POST")
			expect.That(t, gotCode == code && strings.Contains(got, body), "answers %d %s, want %d %s", gotCode, got, code, body)
		}
		want(200, "nothing has changed\n")
		f.write(t, f.content()+"closer: {target_latency: 7s}\n")
		want(200, "closer.target_latency: 7s, was 0s; from the next start on\n")
		f.delays["virtual"] = 2 * time.Minute
		f.write(t, f.content())
		want(200, "delays.categories.virtual: 2m, was 1m; from now on\n")
		f.write(t, f.content()+"closer: {target_latency: 0}\nnonsense: 1\n")
		want(400, "closer.target_latency: \"0\" has no unit")
		want(400, `unknown key "nonsense"`)
		expect.Equal(t, r.gauge("orderclose_config_last_reload_successful"), 0, "config_last_reload_successful")
		if code, _ := post("GET"); code == 200 {
			t.Error("a GET reloads")
		}
		f.write(t, f.content())
		want(200, "")
		expect.Equal(t, r.gauge("orderclose_config_last_reload_successful"), 1, "config_last_reload_successful")
	})
}
