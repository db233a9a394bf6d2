package realtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops"
	"github.com/orderclose/orderclose/internal/wire"
)

// put appends n records of unknown orders to a bucket, all with the same due time.
func (r *rig) put(b orderclose.Bucket, n int, due time.Time) {
	r.t.Helper()
	for i := range n {
		o := orderclose.Order{ID: "nobody-" + b.Topic + string(rune('a'+i)), CreatedAt: time.Now(), Due: due}
		m, err := wire.Record{Order: o, Release: due}.Encode()
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err := r.kafka.Append(r.t.Context(), b.Topic, i%r.cfg.Partitions, []wire.Message{m}); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestReal_StatusExitsWith3UntilOverdueRecordsAreForwarded(t *testing.T) {
	t.Parallel()
	r := newRig(t, realServers(t))
	bucket := r.cfg.Buckets[1]
	r.put(bucket, 1, time.Now().Add(-time.Minute))
	var report ops.Status
	out, code := r.cli("status", "-o", "json")
	r.decode(out, &report)
	p := report.Topics[1].Partitions[0]
	if code != 3 || report.Topics[1].Topic != bucket.Topic || p.Waiting != 1 || p.Overdue < 60 || p.Owner != nil || p.Committed != nil {
		t.Errorf("without a relay it exits with %d and shows %+v", code, p)
	}
	r.start("relay", "closer")
	r.until("status shows that all is read and owned", func() bool {
		report = ops.Status{}
		out, code = r.cli("status", "-o", "json")
		r.decode(out, &report)
		return code == 0 && report.Topics[1].Waiting == 0 && len(notOwned(report)) == 0
	})
	p = report.Topics[1].Partitions[0]
	if code != 0 || p.Waiting != 0 || p.Committed == nil || *p.Committed < 1 || report.Topics[1].State != "Stable" {
		t.Errorf("with a relay it exits with %d and shows %+v", code, p)
	}
	if without := notOwned(report); len(without) > 0 {
		t.Errorf("%v have no owner", without)
	}
}

// notOwned returns the partitions without an owner.
func notOwned(s ops.Status) (partitions []string) {
	for _, topic := range s.Topics {
		for _, p := range topic.Partitions {
			if p.Owner == nil || p.Owner.Host == "" {
				partitions = append(partitions, fmt.Sprintf("%s/%d", topic.Topic, p.Partition))
			}
		}
	}
	return partitions
}

// The relay holds all records of a bucket of seconds, none yet of a bucket of ten
// minutes, and none at all while it does not run.
func TestReal_StatusShowsHowMuchTheRelayHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t, realServers(t))
	r.addBucket()
	short, long := 2, 3
	due := time.Now().Add(time.Hour)
	r.put(r.cfg.Buckets[long], 6, due)
	var report ops.Status
	look := func() {
		report = ops.Status{}
		out, _ := r.cli("status", "-o", "json")
		r.decode(out, &report)
	}
	if look(); report.Topics[long].Waiting != 6 || report.Topics[long].Window != 0 {
		t.Errorf("without a relay: %+v", report.Topics[long])
	}
	r.start("relay")
	r.eventually(func() error {
		r.put(r.cfg.Buckets[short], 4, due) // they are due ten minutes after five seconds
		look()
		if s := report.Topics[short]; s.Members != 1 || s.Waiting < 4 || s.Window != s.Waiting {
			return fmt.Errorf("%d of %d that wait in %s are in the window of %d relays", s.Window, s.Waiting, s.Topic, s.Members)
		}
		if l := report.Topics[long]; l.Members != 1 || l.Waiting < 6 || l.Window != 0 {
			return fmt.Errorf("%d of %d that wait in %s are in the window of %d relays", l.Window, l.Waiting, l.Topic, l.Members)
		}
		return nil
	})
}

func TestReal_ForecastCountsOnlyWaitingRecords(t *testing.T) {
	t.Parallel()
	r := newRig(t, realServers(t))
	begin := time.Now()
	r.put(r.cfg.Buckets[2], 10, begin.Add(5*time.Second))
	put := time.Since(begin)
	var f ops.Forecast
	r.decode(r.must("forecast", "-o", "json"), &f)
	bucket := f.Buckets[2]
	var in int64
	for _, s := range bucket.Steps {
		in += s.Records
	}
	// All are released within the bucket's length from now. On a slow machine some
	// are overdue.
	if in+bucket.Overdue != 10 || bucket.Later != 0 || len(bucket.Steps) != 5 || time.Since(begin) < 5*time.Second && bucket.Overdue > 0 {
		t.Errorf("%+v, after putting 10 in %v", bucket, put)
	}
	r.start("relay")
	r.eventually(func() error {
		f = ops.Forecast{}
		r.decode(r.must("forecast", "-o", "json"), &f)
		return waits(f)
	})
}

// waits returns an error if a record waits in a bucket.
func waits(f ops.Forecast) error {
	for _, b := range f.Buckets {
		all := b.Overdue + b.Later
		for _, s := range b.Steps {
			all += s.Records
		}
		if all > 0 {
			return fmt.Errorf("%d records wait in %s", all, b.Topic)
		}
	}
	return nil
}

func TestReal_TopicsPlanShowsWhatApplyDoesAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, realServers(t))
	type finding struct{ Topic, What string }
	var plan struct {
		Would []finding `json:"would_mend"`
		Left  []finding
	}
	r.decode(r.must("topics", "plan", "-o", "json"), &plan)
	if len(plan.Would)+len(plan.Left) != 0 {
		t.Errorf("after apply: %+v", plan)
	}
	missing := r.cfg.Buckets[0].Topic
	if err := r.kafka.DeleteTopics(t.Context(), missing); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() error {
		states, err := r.kafka.Topics(t.Context(), missing)
		if err == nil && states[missing].Exists {
			err = fmt.Errorf("%s is still there", missing)
		}
		return err
	})
	for range 2 {
		r.decode(r.must("topics", "plan", "-o", "json"), &plan)
		if len(plan.Would) != 1 || plan.Would[0].Topic != missing || len(plan.Left) != 0 {
			t.Errorf("of a missing topic: %+v", plan)
		}
	}
	var applied struct {
		Fixed []finding `json:"fixed"`
	}
	r.decode(r.must("topics", "apply", "-o", "json"), &applied)
	if len(applied.Fixed) != 1 || applied.Fixed[0] != plan.Would[0] {
		t.Errorf("apply fixed %+v, planned was %+v", applied.Fixed, plan.Would)
	}
}
