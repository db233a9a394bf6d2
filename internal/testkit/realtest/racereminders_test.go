package realtest

import (
	"context"
	"math"
	"sync"
	"time"

	clientmetrics "github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
)

// raceRemind is how long before the due time an order is reminded: a second before the first payments.
const raceRemind = 1500 * time.Millisecond

// remindRounds observes the rounds of reminders by a metric of the compensator.
type remindRounds struct {
	metrics *clientmetrics.Registry

	mu   sync.Mutex
	seen []remindRound
}

// remindRound says that every reminder up to complete, by the database's clock, is written.
type remindRound struct{ complete, seen time.Time }

func (r *remindRounds) registry() *clientmetrics.Registry {
	r.metrics = clientmetrics.NewRegistry()
	return r.metrics
}

// watch observes rounds until ctx ends.
func (r *remindRounds) watch(ctx context.Context) {
	began := time.Now()
	scenario.Every(ctx, 20*time.Millisecond, func() {
		families, err := r.metrics.Gather()
		if err != nil {
			return
		}
		seen := time.Now()
		for _, f := range families {
			if f.GetName() != "orderclose_reminders_complete_timestamp_seconds" {
				continue
			}
			complete := time.UnixMilli(int64(math.Floor(f.GetMetric()[0].GetGauge().GetValue() * 1000)))
			r.mu.Lock()
			// Before the first round is complete, the metric is the time when it began.
			if n := len(r.seen); complete.After(began) && (n == 0 || r.seen[n-1].complete.Before(complete)) {
				r.seen = append(r.seen, remindRound{complete, seen})
			}
			r.mu.Unlock()
		}
	})
}

// judgeReminders compares the reminders with the orders: none has two. An order has one if it existed at the time of its reminder, and was unpaid until
// a later round was complete. A round does not see an order that is committed later, as on a busy machine, and no other round reads its due time.
func (s *racingShop) judgeReminders(rounds *remindRounds) {
	s.t.Helper()
	rows := must.Get(s.store.DB().QueryContext(s.t.Context(), "SELECT order_id FROM order_reminders"))(s.t)
	defer rows.Close()
	reminders := map[string]int{}
	for rows.Next() {
		var id string
		must.Do(s.t, rows.Scan(&id))
		reminders[id]++
	}
	must.Do(s.t, rows.Err())
	must := 0
	for _, o := range s.all {
		until := o.Due
		if paid, called := s.paid[o.ID]; called && paid.Before(until) {
			until = paid
		}
		at := o.Due.Add(-raceRemind)
		waited := s.exists[o.ID].Before(at) && rounds.between(at, until)
		if waited {
			must++
		}
		if n := reminders[o.ID]; n > 1 || waited && n == 0 {
			s.t.Errorf("%d reminders of %s, which was unpaid until %v before its due time", n, o.ID, o.Due.Sub(until))
		}
	}
	s.t.Logf("%d of %d orders must have a reminder, %d have one", must, len(s.all), len(reminders))
	expect.That(s.t, must != 0, "no order was unpaid until a round of reminders was complete: %d rounds", len(rounds.seen))
}

// between reports whether a round wrote all reminders up to from, and was complete before until.
func (r *remindRounds) between(from, until time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, round := range r.seen {
		if !round.complete.Before(from) && round.seen.Before(until) {
			return true
		}
	}
	return false
}
