package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/pipeline"
)

// result is the outcome of a world.
type result struct {
	Seed       uint64
	Orders     int
	Early      int
	Lost       int
	Double     int
	Open       int
	Reminders  int           // that had to be written
	Virtual    time.Duration // how long the world lasted by its own clock
	Violations []violation
}

// failed reports whether a promise was broken.
func (r *result) failed() bool { return len(r.Violations) > 0 }

// settle waits until nothing is left to do, at most until bound, stops the processes, and checks the promises.
func (w *chaosWorld) settle(r *result) {
	bound := w.bound()
	if w.file != nil { // each process reads the file every 5 s
		w.applyTopics()
		w.reloadAll(0)
		w.events.Wait()
	}
	for !w.quiet() && time.Now().Before(bound) {
		time.Sleep(time.Second)
	}
	if n := w.openOrders.Load(); n > 0 {
		w.violation("harness", "the checkout still works on %d orders", n)
	}
	if standing := w.standing(); len(standing) > 0 {
		w.violation("late", "partitions stand still: %s", strings.Join(standing, ", "))
	}
	if unsettled := w.unsettled(); len(unsettled) > 0 {
		w.violation("late", "%s", strings.Join(unsettled, ", "))
	}
	w.repeat(bound)
	openAfter := time.Now()
	w.stopAll()
	w.check(r, openAfter)
	r.Virtual = time.Since(w.began)
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Violations = append(r.Violations, w.violations...)
}

// bound returns the time by which nothing may be left to do.
func (w *chaosWorld) bound() time.Time {
	wait(w.ctx, time.Until(w.began.Add(window)))
	last := w.number("SELECT COALESCE(MAX(expire_at), 0) FROM orders WHERE status = 0")
	from := time.Now()
	if due := time.UnixMilli(last); due.After(from) {
		from = due
	}
	bound := from.Add(standsAtMost)
	if (w.plan.Service == knows || w.plan.Service == ends) && w.plan.has("service") && w.plan.has("half-open") {
		// A request on an idle half-open connection gets no answer, and its order waits once more for as long as it has waited.
		bound = bound.Add(90 * time.Second)
	}
	if w.ends() { // for the last question about a closed order
		bound = bound.Add(chaosRecheck[len(chaosRecheck)-1] + time.Minute)
	}
	if w.plan.Sweeps { // for an order that only a sweep finds; the compensator looks each minute whether a sweep is due
		bound = bound.Add(missBound)
	}
	return bound
}

// number returns the number that a query selects.
func (w *chaosWorld) number(query string) (n int64) {
	if err := w.servers.DB().QueryRowContext(w.ctx, query).Scan(&n); err != nil {
		w.violation("harness", "%s: %v", query, err)
	}
	return n
}

// quiet reports whether no part has anything left to do.
func (w *chaosWorld) quiet() bool {
	return w.openOrders.Load() == 0 && w.number("SELECT COUNT(*) FROM orders WHERE status = 0") == 0 && w.hiddenPayments() == 0 &&
		w.number("SELECT (SELECT COUNT(*) FROM outbox_events) + (SELECT COUNT(*) FROM outbox_schedules)") == 0 &&
		len(w.standing()) == 0 && len(w.unsettled()) == 0
}

// groups maps each consumed topic to its consumer group.
func (w *chaosWorld) groups() map[string]string {
	cfg := w.config()
	all := map[string]string{cfg.Topics.Close: cfg.CloserGroup()}
	for _, b := range w.ever() {
		all[b.Topic] = cfg.RelayGroup(b)
	}
	return all
}

// standing returns the partitions whose records are not all committed.
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

// check runs the checker and adds its violations.
func (w *chaosWorld) check(r *result, openAfter time.Time) {
	cfg, p := w.config(), w.plan
	e := scenario.ExpectOf(cfg, nil)
	e.Delays, e.Stock = map[string]string{}, map[string]int64{}
	for _, b := range w.ever() {
		if len(w.servers.Broker.PartitionInfos(b.Topic)) > 0 {
			e.Delays[b.Topic] = cfg.RelayGroup(b)
		}
	}
	for n := range chaosSKUs {
		e.Stock[scenario.SKU(n)] = chaosStock
	}
	w.mu.Lock()
	e.Paid, e.OpenAfter, e.DeadLetters, e.OutboxEmpty, e.Published, e.Added = w.paid, openAfter, w.deadCauses, true, w.published, w.added
	e.Calm = !slices.ContainsFunc(p.Events, func(e event) bool { return e.Kind != "order" })
	if !w.eventsDeleted.IsZero() {
		// Events that were published before are gone with the topic, and the dispatcher cannot
		// know. Within the same millisecond the order of publication and deletion is unknown.
		e.EventsDeleted = w.eventsDeleted.Add(time.Millisecond)
		if p.has("database-clock") { // closes may have times that are hours ahead
			e.EventsDeleted = e.EventsDeleted.Add(24 * time.Hour)
		}
	}
	w.mu.Unlock()
	e.RecordsDeleted = p.has(destructive()...)
	if w.damaged.Load() >= batchTries && p.Sweeps { // a batch may have been given up
		e.RecordsDeleted, e.DeadLetters = true, append(e.DeadLetters, "corrupt")
	}
	w.checkPayments()
	r.Reminders = w.checkReminders()
	e.Left = w.plan.left()
	e.OneClock = !p.has(clocks...) && p.oneBrokerClock()
	// The dispatcher's clock decides into which bucket it puts a schedule, like a producer's.
	e.Calm = e.Calm && p.oneBrokerClock()
	e.ClockSkew = !e.OneClock || p.has("process-clock", "poison")
	if e.OneClock {
		e.Commits = w.commits.all()
	}
	if p.oneBrokerClock() && !p.has("broker-clock") {
		e.RelayedUntil = openAfter.Add(-relayTime)
	}
	v, err := checker.Check(context.WithoutCancel(w.ctx), checker.Servers{DB: w.servers.DB(), Brokers: w.servers.Brokers(), Dial: w.servers.Dial}, e)
	if err != nil {
		w.violation("harness", "the checker cannot read: %v", err)
		return
	}
	w.checkAppends(v, e.RecordsDeleted)
	r.Orders, r.Early, r.Lost, r.Double, r.Open = v.Orders, v.Early, v.Lost, v.Inconsistent, v.Open
	for _, broken := range v.Violations {
		w.violation("broken", "%s", broken)
	}
}

// left returns the orders of the categories that are paused for some time.
func (p *plan) left() (orders map[string]bool) {
	orders = map[string]bool{}
	for _, e := range p.Events {
		paused := func(pause event) bool { return pause.Kind == "pause-closes" && pause.How == e.What }
		if e.Kind == "order" && slices.ContainsFunc(p.Events, paused) {
			orders[fmt.Sprintf("order-%02d", e.N)] = true
		}
	}
	return orders
}

// clocks are the kinds of events that make a clock wrong for a while.
var clocks = []string{"broker-clock", "database-clock", "checkout-clock"}

// destructive returns the kinds of events that delete records from the logs.
func destructive() (all []string) {
	for name, k := range kinds {
		if k.loses {
			all = append(all, name)
		}
	}
	return all
}

// rolesOf returns the roles of an additional process; none if the world does not have the role.
func rolesOf(p *plan, role string) []pipeline.Role {
	if p.Together {
		return p.roles()
	}
	return slices.DeleteFunc(p.roles(), func(r pipeline.Role) bool { return string(r) != role })
}
