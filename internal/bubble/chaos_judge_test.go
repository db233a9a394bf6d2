package bubble

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"orderclose/internal/app"
	"orderclose/internal/checker"
	"orderclose/internal/scenario"
)

// result is how a world ended.
type result struct {
	Seed       uint64
	Orders     int
	Early      int
	Lost       int
	Double     int
	Open       int
	Virtual    time.Duration // how long it lasted by the bubble's clock
	Violations []violation
}

// failed says whether a promise was broken.
func (r *result) failed() bool { return len(r.Violations) > 0 }

// settle waits until everything has come to its end, at most as long as is promised,
// stops the processes and judges.
func (w *chaosWorld) settle(r *result) {
	bound := w.bound()
	if w.file != nil { // each process reads the file once a minute
		w.applyTopics()
		w.reloadAll(0)
		w.events.Wait()
	}
	for !w.quiet() && time.Now().Before(bound) {
		time.Sleep(time.Second)
	}
	if standing := w.standing(); len(standing) > 0 {
		w.blame("late", "partitions stand still: %s", strings.Join(standing, ", "))
	}
	if unsettled := w.unsettled(); len(unsettled) > 0 {
		w.blame("late", "%s", strings.Join(unsettled, ", "))
	}
	w.repeat(bound)
	openAfter := time.Now()
	w.stopAll()
	w.judge(r, openAfter)
	r.Virtual = time.Since(w.began)
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Violations = append(r.Violations, w.violations...)
}

// bound is until when everything must have come to its end.
func (w *chaosWorld) bound() time.Time {
	wait(w.ctx, time.Until(w.began.Add(window)))
	last := w.number("SELECT COALESCE(MAX(expire_at), 0) FROM orders WHERE status = 0")
	from := time.Now()
	if due := time.UnixMilli(last); due.After(from) {
		from = due
	}
	bound := from.Add(standsAtMost)
	if w.plan.Service == knows && w.plan.has("service") && w.plan.has("half-open") {
		// A question on an idle connection that went silent gets no answer, and its order
		// waits once more for as long as it waited.
		bound = bound.Add(90 * time.Second)
	}
	if w.plan.Sweeps { // an order that only a sweep finds, which looks each minute whether one is due
		bound = bound.Add(w.config().Compensator.Period + w.config().Compensator.Grace + 2*time.Minute)
	}
	return bound
}

// number is the number that a query answers.
func (w *chaosWorld) number(query string) (n int64) {
	if err := w.servers.Store.DB().QueryRowContext(w.ctx, query).Scan(&n); err != nil {
		w.blame("harness", "%s: %v", query, err)
	}
	return n
}

// quiet says whether nothing is left to do for anybody.
func (w *chaosWorld) quiet() bool {
	return w.number("SELECT COUNT(*) FROM orders WHERE status = 0") == 0 &&
		w.number("SELECT (SELECT COUNT(*) FROM outbox_events) + (SELECT COUNT(*) FROM outbox_schedules)") == 0 &&
		len(w.standing()) == 0 && len(w.unsettled()) == 0
}

// groups maps each topic that is consumed to the group that consumes it.
func (w *chaosWorld) groups() map[string]string {
	cfg := w.config()
	all := map[string]string{cfg.Topics.Close: cfg.CloserGroup(), cfg.Topics.Replay: cfg.ReplayGroup()}
	for _, b := range w.ever() {
		all[b.Topic] = cfg.RelayGroup(b)
	}
	return all
}

// standing names the partitions whose records are not all committed.
func (w *chaosWorld) standing() (all []string) {
	for topic, group := range w.groups() {
		commits := map[int32]int64{}
		if info := w.servers.Broker.GroupInfo(group); info != nil {
			for p, c := range info.Commits[topic] {
				commits[p] = c.Offset
			}
		}
		for _, p := range w.servers.Broker.PartitionInfos(topic) {
			if at := max(commits[p.Partition], p.LogStartOffset); at < p.HighWatermark {
				all = append(all, fmt.Sprintf("%s/%d at %d of %d", topic, p.Partition, at, p.HighWatermark))
			}
		}
	}
	slices.Sort(all)
	return all
}

// judge holds what the servers say against the promises.
func (w *chaosWorld) judge(r *result, openAfter time.Time) {
	cfg, p := w.config(), w.plan
	delays := map[string]string{}
	for _, b := range w.ever() {
		if len(w.servers.Broker.PartitionInfos(b.Topic)) > 0 {
			delays[b.Topic] = cfg.RelayGroup(b)
		}
	}
	stock := map[string]int64{}
	for n := range chaosSKUs {
		stock[scenario.SKU(n)] = chaosStock
	}
	w.mu.Lock()
	e := checker.Expect{
		Stock: stock, Paid: w.paid, OpenAfter: openAfter, Delays: delays,
		CloseTopic: cfg.Topics.Close, DeadLetterTopic: cfg.Topics.DeadLetter, CloserGroup: cfg.CloserGroup(),
		ReplayTopic: cfg.Topics.Replay, ReplayGroup: cfg.ReplayGroup(), DeadLetters: w.deadCauses,
		EventsTopic: cfg.Topics.Events, OutboxEmpty: true, Published: w.published, Added: w.added,
		Calm: !slices.ContainsFunc(p.Events, func(e event) bool { return e.Kind != "order" }),
	}
	if !w.eventsDeleted.IsZero() {
		// What was published before is gone with the topic, which the dispatcher cannot
		// know. Within the millisecond nobody can say what came first.
		e.EventsDeleted = w.eventsDeleted.Add(time.Millisecond)
		if p.has("database-clock") { // closes may have times that are hours ahead
			e.EventsDeleted = e.EventsDeleted.Add(24 * time.Hour)
		}
	}
	w.mu.Unlock()
	e.Forgotten = p.has(destructive()...)
	if w.damaged.Load() >= batchTries && p.Sweeps { // a batch may have been given up
		e.Forgotten, e.DeadLetters = true, append(e.DeadLetters, "corrupt")
	}
	w.judgePayments()
	e.OneClock = !p.has(clocks...) && p.oneBrokerClock()
	// A dispatcher's clock picks where a schedule goes, as a producer's does.
	e.Calm = e.Calm && p.oneBrokerClock()
	e.ClocksApart = !e.OneClock || p.has("process-clock", "poison")
	if e.OneClock {
		e.Commits = w.witness.all()
	}
	if p.oneBrokerClock() && !p.has("broker-clock") {
		e.RelayedUntil = openAfter.Add(-relayTime)
	}
	v, err := checker.Check(context.WithoutCancel(w.ctx), checker.Servers{DB: w.servers.Store.DB(), Brokers: w.servers.Brokers(), Dial: w.servers.Dial}, e)
	if err != nil {
		w.blame("harness", "the checker cannot read: %v", err)
		return
	}
	w.judgeAppends(v, e.Forgotten)
	r.Orders, r.Early, r.Lost, r.Double, r.Open = v.Orders, v.Early, v.Lost, v.Double, v.Open
	for _, broken := range v.Violations {
		w.blame("broken", "%s", broken)
	}
}

// clocks are the kinds by which a clock is wrong for a while.
var clocks = []string{"broker-clock", "database-clock", "checkout-clock"}

// destructive are the kinds after which the logs do not have all that was in them.
func destructive() (all []string) {
	for name, k := range kinds {
		if k.loses {
			all = append(all, name)
		}
	}
	return all
}

// rolesOf is the roles of a process that is started beside the others.
func rolesOf(p *plan, role string) []app.Role {
	if p.Together {
		return app.AllRoles()
	}
	return []app.Role{app.Role(role)}
}
