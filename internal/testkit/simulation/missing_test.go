package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestSimulation_ARestartBeforeTopicsApplyServesWhatThereIs: a process may be restarted after a bucket was added to topics.yaml and before "topics
// apply". It serves all other topics, puts nothing into the new bucket, and uses the bucket when its topic appears.
func TestSimulation_ARestartBeforeTopicsApplyServesWhatThereIs(t *testing.T) {
	f := newTopicsFile(t)
	simulateWithFile(t, f, func(ctx context.Context, r *rig) {
		must.Do(t, drop.Topics(ctx, r.kafka, r.cfg.Topics.DeadLetter))
		f.buckets[30*time.Second] = true
		f.write(t, f.content())
		r.cfg = mustLoad(t, f.path)
		r.startAll()
		time.Sleep(time.Second)
		for i := range 4 {
			r.order(fmt.Sprint("before", i), "physical", true) // 95 s: 1m, and then 10s where 30s would do
		}
		time.Sleep(100 * time.Second)
		for i := range 4 { // r.check at the end checks how late they were
			expect.Equal(t, r.status(fmt.Sprint("before", i)), store.Closed, "the status of order %d", i)
		}
		for _, role := range picking {
			a := r.apps[role]
			hints := strings.Join(a.Hints(), "\n")
			expect.That(t, len(a.Ready()) == 0 && strings.Contains(hints, "topic delay_30s: does not exist: run orderclose topics apply"),
				"%s waits for %v and lacks %q", role, a.Ready(), hints)
			expect.Equal(t, len(a.ActiveBuckets()), 3, "%s: buckets whose topics exist", role)
		}
		r.apply()
		time.Sleep(3 * time.Minute) // until every process has seen the topic
		for i := range 4 {
			r.order(fmt.Sprint("after", i), "physical", true)
		}
		time.Sleep(100 * time.Second)
		if v := r.check(time.Now()); v.ByPath["pipeline"] != 8 || v.Quantile(1) != 0 || r.inTopic("delay_30s") == 0 {
			t.Errorf("closed %v, the latest %v late, %d went through the new bucket", v.ByPath, v.Quantile(1), r.inTopic("delay_30s"))
		}
		for _, role := range picking {
			if a := r.apps[role]; len(a.Hints()) > 0 || !slices.Equal(a.ActiveBuckets(), r.cfg.Buckets) {
				t.Errorf("%s lacks %v, picks %v", role, a.Hints(), a.ActiveBuckets())
			}
		}
	})
}
