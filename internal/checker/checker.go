// Package checker says whether the promises were kept. It reads only Kafka and
// the database, with clients and queries of its own, and shares no code with the
// stages that it judges.
//
//	database.go what the tables of the reference schema say
//	log.go      what the topics say
//	events.go   the events that tell of closes
//	commits.go  what groups have committed, and when
//	deadletters.go  what dead letters say
//	causes.go   what sweeps say of orders that they found
//	state.go    what must stay as it is
//	checker.go  the verdict
package checker

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
)

// maxNamed bounds how many orders of a kind are named; all are counted.
const maxNamed = 5

// Servers is where the evidence is.
type Servers struct {
	DB      *sql.DB
	Brokers []string
	Dial    func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP
	TLS     *tls.Config                                                          // nil: none; not with Dial
	SASL    sasl.Mechanism                                                       // nil: none
}

// Expect is what the one who ran the orders knows, and the servers do not.
type Expect struct {
	// Stock of each SKU before the first order: available and reserved together.
	Stock map[string]int64
	// Paid are the orders whose payment was confirmed.
	Paid []string
	// OpenAfter is until when, by the checker's clock, an overdue order may be open;
	// an order that was due before it is to be closed.
	OpenAfter time.Time
	// Delays maps each delay topic to the consumer group that empties it.
	Delays map[string]string
	// CloseTopic and DeadLetterTopic are where records go from there; CloserGroup
	// empties the first.
	CloseTopic, DeadLetterTopic, CloserGroup string
	// ReplayTopic is where records go that were sent again by hand, and ReplayGroup
	// empties it; "" if there is none.
	ReplayTopic, ReplayGroup string
	// Added are the orders that a committed transaction put into the outbox of
	// schedules, and RolledBack those of which only others did, that came to nothing.
	// What was Added counts as Published, once a dispatcher has seen to it.
	Added, RolledBack []string
	// EventsTopic is where the events of closes go. OutboxEmpty says that the
	// dispatcher of both outboxes ran until all was quiet, so that nothing may be left
	// for it.
	EventsTopic string
	OutboxEmpty bool
	// EventsDeleted is when somebody deleted EventsTopic last, with the events in it, by
	// the database's clock. Of orders that were closed before, events may be missing.
	EventsDeleted time.Time
	// DeadLetters are the causes for which there may be dead letters.
	DeadLetters []string
	// Published are the orders whose record Kafka has acked. If the run was Calm, so
	// that nothing was killed or stopped, each that was closed was closed by the
	// pipeline, and the sweep had nothing to mend.
	Published []string
	Calm      bool
	// MaxAppends is how many records of one order the delay topics may have taken at
	// most; 0 is no limit.
	MaxAppends int
	// Commits are all that groups have made, as the broker got them, if a witness stood
	// by; without one only the last ones are judged.
	Commits []Commit
	// OneClock says that the database's clock is the broker's, so that their times can
	// be compared.
	OneClock bool
	// RelayedUntil is until when, by the broker's clock, relays ran that had time enough:
	// what was to leave its delay topic before it has left. Zero: nobody knows.
	RelayedUntil time.Time
	// Stopped says that relays and closers were stopped in an orderly way, on a broker
	// that answered: what was acked is committed.
	Stopped bool
	// Misses are what sweeps have reported, all of them; nil: nobody kept the reports.
	// Causes are the right ones, by order, as far as they are known.
	Misses []Miss
	Causes map[string]string
	// Unanswered says that the database may have kept answers to commits to itself: a
	// sweep cannot report what it does not know it has closed.
	Unanswered bool
	// ClocksApart says that the brokers' or the producers' clocks were wrong: a record
	// may be in the close topic before it is due by another clock.
	ClocksApart bool
	// Forgotten says that records were deleted from the logs before this checker read
	// them: that a record is nowhere proves nothing then.
	Forgotten bool
	// ProducerTime says that the brokers leave timestamps to producers, as an embedded
	// one does in real time. Else that is drift, and blinds this checker.
	ProducerTime bool
}

// Verdict is what the checker found.
type Verdict struct {
	Orders    int
	Paid      int
	Cancelled int
	ByPath    map[string]int // closed orders by the path of their receipt
	Open      int            // due before OpenAfter and still unpaid
	Waiting   int            // unpaid and not due yet
	Early     int            // closed before due, or in the close topic before due
	Lost      int            // records that went nowhere
	Double    int            // orders and SKUs whose receipts, ledger, stock or events do not add up
	Repeated  int            // records in the close topic beyond one for each time that their order was published
	Events    int            // different events in their topic
	StockOK   bool
	Lateness  []time.Duration // of every closed order that came by the pipeline, sorted
	Appends   map[string]int  // records in delay topics, by key
	Arrivals  map[string]int  // records in the close topic and the replay topic, by key
	// Violations are the promises that were broken, in words. Empty is good.
	Violations []string
}

// OK reports whether every promise was kept.
func (v *Verdict) OK() bool { return len(v.Violations) == 0 }

// Closed is how many orders have a receipt.
func (v *Verdict) Closed() int {
	n := 0
	for _, k := range v.ByPath {
		n += k
	}
	return n
}

// Quantile returns the lateness that a share q of the pipeline's orders did not
// exceed; 0 without any.
func (v *Verdict) Quantile(q float64) time.Duration {
	if len(v.Lateness) == 0 {
		return 0
	}
	return v.Lateness[min(int(q*float64(len(v.Lateness))), len(v.Lateness)-1)]
}

func (v *Verdict) blame(format string, args ...any) {
	v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
}

// Check reads everything and judges it. The error is about reading.
func Check(ctx context.Context, s Servers, e Expect) (*Verdict, error) {
	db, err := readDatabase(ctx, s.DB)
	if err != nil {
		return nil, fmt.Errorf("checker: database: %w", err)
	}
	logs, err := readLogs(ctx, s, e)
	if err != nil {
		return nil, fmt.Errorf("checker: kafka: %w", err)
	}
	return judge(db, logs, e), nil
}

// judge compares the evidence with the promises. Pure.
func judge(db *tables, l *logs, e Expect) *Verdict {
	v := &Verdict{Orders: len(db.orders), ByPath: map[string]int{}, Appends: l.appends, Arrivals: l.arrivals(e)}
	v.judgeOrders(db, e)
	v.judgeReceipts(db)
	v.counting(&v.Double, func() {
		v.judgeLedger(db)
		v.judgeStock(db, e)
	})
	v.judgeLogs(l, e)
	v.judgeCloser(db, l, e)
	v.judgeDeadLetters(l, e)
	v.judgeAdded(db, l, e)
	v.judgeCommits(db, l, e)
	v.judgeRelayed(l, e)
	v.judgeStopped(db, l, e)
	v.judgeLetters(l, e)
	v.judgeMisses(db, l, e)
	v.judgePublished(db, e)
	v.counting(&v.Double, func() { v.judgeEvents(db, l, e) })
	v.countRepeated(l, e)
	slices.Sort(v.Lateness)
	return v
}

// counting adds to n how many violations judge finds.
func (v *Verdict) counting(n *int, judge func()) {
	before := len(v.Violations)
	judge()
	*n += len(v.Violations) - before
}

// judgeOrders: what is due is closed, what was paid is not.
func (v *Verdict) judgeOrders(db *tables, e Expect) {
	var open []string
	for id, o := range db.orders {
		switch o.status {
		case unpaid:
			if o.due.Before(e.OpenAfter) {
				open = append(open, fmt.Sprintf("%s due %s", id, o.due.UTC().Format(time.RFC3339Nano)))
			} else {
				v.Waiting++
			}
		case paid, shipped, confirmed:
			v.Paid++
		case cancelled:
			v.Cancelled++
		}
		if o.status == closed && o.wasPaid {
			v.blame("order %s was paid and is closed", id)
		}
		if _, has := db.receipts[id]; has != (o.status == closed) {
			v.blame("order %s has status %d and a receipt: %v", id, o.status, has)
		}
	}
	if v.Open = len(open); v.Open > 0 {
		v.blame("%d orders are overdue and open, such as %v", v.Open, some(open))
	}
	for _, id := range e.Paid {
		if o, ok := db.orders[id]; !ok || o.status != paid && o.status != shipped && o.status != confirmed {
			v.blame("order %s was paid and has status %d", id, o.status)
		}
	}
}

// judgeReceipts: none is early, none stands without its order.
func (v *Verdict) judgeReceipts(db *tables) {
	var early []string
	for id, r := range db.receipts {
		o, ok := db.orders[id]
		if !ok {
			v.blame("receipt without order: %s", id)
			continue
		}
		v.ByPath[r.path]++
		late := r.closedAt.Sub(o.due)
		if late < 0 {
			early = append(early, id)
		}
		if !r.closedAt.Equal(o.closedAt) || !r.due.Equal(o.due) || r.lateness != late {
			v.blame("receipt of %s does not agree with its order: %+v, %+v", id, r, o)
		}
		if r.path == "pipeline" {
			v.Lateness = append(v.Lateness, late)
		}
	}
	if v.Early += len(early); len(early) > 0 {
		v.blame("%d orders were closed before they were due, such as %v", len(early), some(early))
	}
}

// judgeLedger: what was closed or cancelled gave back just what it held, once, and
// what was shipped took just that.
func (v *Verdict) judgeLedger(db *tables) {
	for id, o := range db.orders {
		kind, back := map[int]string{closed: "close", cancelled: "cancel", shipped: "ship", confirmed: "ship"}[o.status]
		for sku, quantity := range db.items[id] {
			switch have := db.ledger[id][entry{sku, kind}]; {
			case back && have != quantity:
				v.blame("order %s holds %d of %s and gave back %d", id, quantity, sku, have)
			case !back && len(db.ledger[id]) > 0:
				v.blame("order %s has status %d and gave stock back: %v", id, o.status, db.ledger[id])
			}
		}
		if back && len(db.ledger[id]) != len(db.items[id]) {
			v.blame("order %s gave back %v of %v", id, db.ledger[id], db.items[id])
		}
	}
}

// judgeStock: nothing came, nothing went but what was shipped, and what is reserved is what open and paid
// orders hold.
func (v *Verdict) judgeStock(db *tables, e Expect) {
	held, gone := map[string]int64{}, map[string]int64{}
	for id, o := range db.orders {
		if o.status == shipped || o.status == confirmed {
			for sku, quantity := range db.items[id] {
				gone[sku] += quantity
			}
		}
		if o.status == unpaid || o.status == paid {
			for sku, quantity := range db.items[id] {
				held[sku] += quantity
			}
		}
	}
	before := len(v.Violations)
	for sku, start := range e.Stock {
		have, ok := db.stock[sku]
		if !ok || have.available+have.reserved+gone[sku] != start {
			v.blame("SKU %s has %d available, %d reserved and %d shipped, and began with %d", sku, have.available, have.reserved, gone[sku], start)
		}
		if have.reserved != held[sku] {
			v.blame("SKU %s has %d reserved, and orders hold %d", sku, have.reserved, held[sku])
		}
	}
	v.StockOK = len(v.Violations) == before
}

// judgeLogs: every record that a relay is done with went on, and none was in the
// close topic before it was due.
func (v *Verdict) judgeLogs(l *logs, e Expect) {
	var gone []string
	waiting := l.waiting(e)
	for topic, group := range e.Delays {
		for _, r := range l.records[topic] {
			committed, ok := l.committed[group][r.partition]
			if ok && r.offset < committed && !l.arrived[r.key] && !l.later(r) && !waiting[r.key] {
				gone = append(gone, fmt.Sprintf("%s at %s/%d/%d", r.key, topic, r.partition, r.offset))
			}
		}
		for p, committed := range l.committed[group] {
			if e.Forgotten {
				break
			}
			if end := l.ends[topic][p]; committed > end {
				v.blame("group %s has committed %d of %s/%d, which ends at %d", group, committed, topic, p, end)
			}
		}
	}
	if len(gone) > 0 && !e.Forgotten {
		v.Lost += len(gone)
		v.blame("%d records were committed and went nowhere, such as %v", len(gone), some(gone))
	}
	for key, n := range l.appends {
		if e.MaxAppends > 0 && n > e.MaxAppends {
			v.blame("order %s took %d appends to delay topics, at most %d are right", key, n, e.MaxAppends)
		}
	}
	var early []string
	for topic := range e.closed() {
		for _, r := range l.records[topic] {
			if !r.brokerTime && !e.ProducerTime {
				v.blame("%s has records that the broker did not stamp", topic)
				break
			}
			if r.brokerTime && r.hasDue && r.appended.Before(r.due) {
				early = append(early, fmt.Sprintf("%s in %s by %v", r.key, topic, r.due.Sub(r.appended)))
			}
		}
	}
	if e.ClocksApart {
		return
	}
	if v.Early += len(early); len(early) > 0 {
		v.blame("%d records were in the close topic before they were due, such as %v", len(early), some(early))
	}
}

// judgeCloser: every record that the closer is done with was settled: its order
// has come to an end, or waits in a delay topic again, or it is a dead letter.
func (v *Verdict) judgeCloser(db *tables, l *logs, e Expect) {
	for topic, group := range e.closed() {
		var open []string
		for _, r := range l.records[topic] {
			committed, ok := l.committed[group][r.partition]
			o, known := db.orders[r.key]
			if !known && e.Forgotten { // its dead letter may have been deleted
				continue
			}
			if ok && r.offset < committed && (!known || o.status == unpaid) && !l.dead[r.key] && !l.later(r) {
				open = append(open, fmt.Sprintf("%s at %d/%d", r.key, r.partition, r.offset))
			}
		}
		if len(open) > 0 {
			v.Lost += len(open)
			v.blame("%d records of %s were committed and not settled, such as %v", len(open), topic, some(open))
		}
	}
}

// closed are the topics of orders that are due, and who empties each.
func (e Expect) closed() map[string]string {
	topics := map[string]string{e.CloseTopic: e.CloserGroup}
	if e.ReplayTopic != "" {
		topics[e.ReplayTopic] = e.ReplayGroup
	}
	return topics
}

// judgeDeadLetters: there are none but those that were to be expected.
func (v *Verdict) judgeDeadLetters(l *logs, e Expect) {
	for _, r := range l.records[e.DeadLetterTopic] {
		if !r.mark && !slices.Contains(e.DeadLetters, r.cause) {
			v.blame("a dead letter of %q because of %q", r.key, r.cause)
		}
	}
}

// judgeAdded: what a committed transaction added is published at least once, or
// waits in the outbox; what was rolled back is nowhere.
func (v *Verdict) judgeAdded(db *tables, l *logs, e Expect) {
	var lost, ghosts []string
	for _, id := range e.Added {
		if l.appends[id] == 0 && !l.arrived[id] && db.added[id] == 0 {
			lost = append(lost, id)
		}
	}
	if len(lost) > 0 && !e.Forgotten {
		v.Lost += len(lost)
		v.blame("%d orders were added to the outbox and are neither there nor in any topic, such as %v", len(lost), some(lost))
	}
	for _, id := range e.RolledBack {
		if l.appends[id] > 0 || l.arrived[id] || db.added[id] > 0 {
			ghosts = append(ghosts, id)
		}
	}
	if len(ghosts) > 0 {
		v.blame("%d orders were rolled back and scheduled all the same, such as %v", len(ghosts), some(ghosts))
	}
	if e.OutboxEmpty && len(db.added) > 0 {
		v.blame("%d orders are still in the outbox of schedules, such as %v", len(db.added), some(slices.Collect(maps.Keys(db.added))))
	}
}

// judgePublished: in a calm run the sweep closes nothing that was published.
func (v *Verdict) judgePublished(db *tables, e Expect) {
	if !e.Calm {
		return
	}
	var missed []string
	for _, id := range slices.Concat(e.Published, e.Added) {
		if r, ok := db.receipts[id]; ok && r.path != "pipeline" {
			missed = append(missed, id+" by "+r.path)
		}
	}
	if len(missed) > 0 {
		v.blame("the pipeline missed %d orders that were published, such as %v", len(missed), some(missed))
	}
}

// countRepeated: at least once is the promise, so a repeat breaks none. After a
// planned rebalance there should be none all the same.
func (v *Verdict) countRepeated(l *logs, e Expect) {
	left := map[string]int{}
	for _, id := range slices.Concat(e.Published, e.Added) {
		left[id]++
	}
	for _, r := range l.records[e.CloseTopic] {
		if left[r.key]--; left[r.key] < 0 {
			v.Repeated++
		}
	}
}

func some(all []string) []string {
	slices.Sort(all)
	return all[:min(len(all), maxNamed)]
}
