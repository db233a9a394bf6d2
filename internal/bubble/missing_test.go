package bubble

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"orderclose/internal/app"
	"orderclose/internal/store"
)

// TestBubble_ARestartBeforeTopicsApplyServesWhatThereIs: between "bucket added to
// topics.yaml" and "topics apply" a process may be restarted. It serves all other topics,
// puts nothing into the new bucket, and takes it up when its topic appears.
func TestBubble_ARestartBeforeTopicsApplyServesWhatThereIs(t *testing.T) {
	t.Parallel()
	f := newTopicsFile(t)
	inBubbleWithFile(t, f, func(ctx context.Context, r *rig) {
		if err := r.kafka.DeleteTopics(ctx, r.cfg.Topics.Replay, r.cfg.Topics.DeadLetter); err != nil {
			t.Fatal(err)
		}
		f.buckets[30*time.Second] = false
		f.write(t, f.content())
		r.cfg = mustLoad(t, f.path)
		r.startAll()
		time.Sleep(time.Second)
		for i := range 4 {
			r.order(fmt.Sprint("before", i), "physical", true) // 95 s: 1m, and then 10s where 30s would do
		}
		time.Sleep(100 * time.Second)
		for i := range 4 { // how late is checked at the end
			if s := r.status(fmt.Sprint("before", i)); s != store.Closed {
				t.Errorf("order %d is %v", i, s)
			}
		}
		for _, role := range []app.Role{app.Relay, app.Closer, app.Outbox} {
			a := r.apps[role]
			hints := strings.Join(a.Hints(), "\n")
			if len(a.Ready()) > 0 || !strings.Contains(hints, "topic delay_30s: does not exist: run orderclose topics apply") {
				t.Errorf("%s waits for %v and lacks %q", role, a.Ready(), hints)
			}
			if topics := len(a.Picked()); topics != 3 {
				t.Errorf("%s picks %d buckets, want the 3 whose topics exist", role, topics)
			}
		}
		r.apply()
		time.Sleep(3 * time.Minute) // to be seen by every process
		for i := range 4 {
			r.order(fmt.Sprint("after", i), "physical", true)
		}
		time.Sleep(100 * time.Second)
		if v := r.check(time.Now()); v.ByPath["pipeline"] != 8 || v.Quantile(1) != 0 || r.inTopic("delay_30s") == 0 {
			t.Errorf("closed %v, the latest %v late, %d went through the new bucket", v.ByPath, v.Quantile(1), r.inTopic("delay_30s"))
		}
		for _, role := range app.AllRoles() {
			if a := r.apps[role]; len(a.Hints()) > 0 || !slices.Equal(a.Picked(), r.cfg.Buckets) {
				t.Errorf("%s lacks %v, picks %v", role, a.Hints(), a.Picked())
			}
		}
	})
}
