// Package checker reports which promises of the system were broken in a run. Tests and the demo call Check after a run, with what they know of the run
// in Expect. The Verdict lists each violation.
//
// The checker reads only Kafka and the database, with its own clients and queries. It shares no code with the parts that it checks.
//
//	database.go    reads the tables of the reference schema
//	log.go         reads the topics and the commits
//	checker.go     the verdict on orders, receipts, ledger and stock
//	kafka.go       the verdict on the records in Kafka
//	events.go      checks the events of closes
//	commits.go     checks what groups have committed, and when
//	deadletters.go checks the headers of dead letters
//	created.go     looks for orders that were acknowledged and are gone
//	lateness.go    how late each order was, and when lateness was normal again after a fault
//	witness.go     looks for early closes while the run goes on
//	state.go       compares the database before and after
package checker

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
)

// maxNamed bounds how many examples a violation names. All are counted.
const maxNamed = 5

// Servers are the database and the Kafka cluster to check.
type Servers struct {
	DB      *sql.DB
	Brokers []string
	Dial    func(ctx context.Context, network, address string) (net.Conn, error) // nil: TCP
	TLS     *tls.Config                                                          // nil: none; not with Dial
	SASL    sasl.Mechanism                                                       // nil: none
}

// Expect is what the caller knows of the run and the servers do not.
type Expect struct {
	// Stock is the stock of each SKU before the first order, available plus reserved.
	Stock map[string]int64
	// Created are orders whose transaction the database has acknowledged. Paid are the orders whose payment was confirmed.
	Created, Paid []string
	// OpenAfter bounds overdue orders: an order that was due before it must be closed.
	OpenAfter time.Time
	// Delays maps each delay topic to the consumer group that reads it.
	Delays map[string]string
	// CloseTopic and DeadLetterTopic are where records go from the delay topics. CloserGroup reads CloseTopic.
	CloseTopic, DeadLetterTopic, CloserGroup string
	// Added are the orders that a committed transaction has put into the outbox of schedules. RolledBack are the orders that only rolled-back
	// transactions have put there. Each Added order counts as Published once the dispatcher has published it.
	Added, RolledBack []string
	// EventsTopic is the topic of the events of closes; "" if there is none. OutboxEmpty says
	// that the dispatcher ran until nothing was left to do, so that both outboxes must be empty.
	EventsTopic string
	OutboxEmpty bool
	// EventsDeleted is when EventsTopic was last deleted with its events, by the database's
	// clock. Events of orders that were closed before may be missing.
	EventsDeleted time.Time
	// DeadLetters are the causes that dead letters may have.
	DeadLetters []string
	// Published are the orders whose record Kafka has acked. Calm says that nothing was killed or stopped. Missed is how many orders compensators have
	// counted as missed by the pipeline: without them, what compensators have closed was late because of a pause or an earlier failure. If the run is
	// Calm, the pipeline may not have missed a Published order.
	Published []string
	Calm      bool
	Missed    int64
	// MaxAppends bounds the records of one order in the delay topics; 0 means no limit.
	MaxAppends int
	// Commits are all commits of all groups, as the broker received them. Without them only the last commits are checked.
	Commits []Commit
	// Left are orders that a closer may leave to the compensator, since a pause stops their category: their record may be done before they are closed.
	Left map[string]bool
	// OneClock says that the database and the brokers have the same clock, so that their times can be compared.
	OneClock bool
	// RelayedUntil says that relays had enough time until this moment of the brokers' clock.
	// A record that was to leave its delay topic before must have left. Zero: unknown.
	RelayedUntil time.Time
	// Stopped says that relays and closers were stopped in an orderly way while the brokers answered. Then everything that was acked must be committed.
	Stopped bool
	// ClockSkew says that clocks of brokers or producers were wrong. A record may then be in the close topic before it is due by another clock.
	ClockSkew bool
	// RecordsDeleted says that records were deleted from the logs before this check. A missing record then proves nothing.
	RecordsDeleted bool
	// ProducerTime says that producers set the timestamps of records, as with an embedded broker
	// in real time. Otherwise such records are a violation, because their append time is unknown.
	ProducerTime bool
}

// Verdict is the result of a check.
type Verdict struct {
	Orders       int
	Paid         int
	Cancelled    int
	ByPath       map[string]int // closed orders by the path of their receipt
	Open         int            // unpaid, and due before OpenAfter
	Waiting      int            // unpaid, and not due before OpenAfter
	Early        int            // closed before due, or in the close topic before due
	Lost         int            // records and acknowledged orders that disappeared
	Inconsistent int            // contradictions of ledger, stock and events, and paid orders that are closed
	Repeated     int            // records in the close topic beyond one for each publication of their order
	Events       int            // orders with an event in the events topic
	Reminders    int            // reminders, without their copies
	StockOK      bool
	Lateness     []time.Duration // of every order that the pipeline closed, sorted
	Samples      []Sample        // every closed order, sorted by due time
	Appends      map[string]int  // records in delay topics, by key
	Arrivals     map[string]int  // records in the close topic, by key
	// Violations describe the broken promises. It is empty if all were kept.
	Violations []string
}

// OK reports whether every promise was kept.
func (v *Verdict) OK() bool { return len(v.Violations) == 0 }

// Closed returns the number of orders with a receipt.
func (v *Verdict) Closed() int {
	n := 0
	for _, k := range v.ByPath {
		n += k
	}
	return n
}

// Quantile returns the q-quantile of Lateness.
func (v *Verdict) Quantile(q float64) time.Duration { return Quantile(v.Lateness, q) }

// Latest returns how late the latest closed order was, by whatever path it was closed.
func (v *Verdict) Latest() (late time.Duration) {
	for _, s := range v.Samples {
		late = max(late, s.Late)
	}
	return late
}

func (v *Verdict) violation(format string, args ...any) {
	v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
}

// several adds a violation that counts and names orders or records, if there are any. It returns their number.
func (v *Verdict) several(of []string, format string) int {
	if len(of) > 0 {
		slices.Sort(of)
		v.violation(format, len(of), of[:min(len(of), maxNamed)])
	}
	return len(of)
}

// Check reads the servers and checks all promises. An error means that reading failed.
func Check(ctx context.Context, s Servers, e Expect) (*Verdict, error) {
	db, err := readDatabase(ctx, s.DB)
	if err != nil {
		return nil, fmt.Errorf("checker: database: %w", err)
	}
	logs, err := readLogs(ctx, s, e)
	if err != nil {
		return nil, fmt.Errorf("checker: kafka: %w", err)
	}
	return evaluate(db, logs, e), nil
}

// evaluate checks all promises. Pure.
func evaluate(db *tables, l *logs, e Expect) *Verdict {
	v := &Verdict{Orders: len(db.orders), ByPath: map[string]int{}, Appends: l.appends, Arrivals: l.arrivals(e)}
	v.checkOrders(db, e)
	v.checkReceipts(db)
	v.checkCreated(db, e)
	v.counting(&v.Inconsistent, func() {
		v.checkLedger(db)
		v.checkStock(db, e)
	})
	v.checkLogs(l, e)
	v.checkCloser(db, l, e)
	v.checkDeadLetterCauses(db, l, e)
	v.checkAdded(db, l, e)
	v.checkCommits(db, l, e)
	v.checkRelayed(l, e)
	v.checkStopped(db, l, e)
	v.checkDeadLetterHeaders(l, e)
	v.checkPublished(db, l, e)
	v.counting(&v.Inconsistent, func() { v.checkEvents(db, l, e) })
	v.countRepeated(l, e)
	slices.Sort(v.Lateness)
	slices.SortFunc(v.Samples, func(a, b Sample) int { return a.Due.Compare(b.Due) })
	return v
}

// counting runs check and adds the number of violations that it finds to n.
func (v *Verdict) counting(n *int, check func()) {
	before := len(v.Violations)
	check()
	*n += len(v.Violations) - before
}

// checkOrders: due orders are closed, and paid orders are not.
func (v *Verdict) checkOrders(db *tables, e Expect) {
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
		if o.status == closed && !o.paidAt.IsZero() {
			v.Inconsistent++
			v.violation("order %s was paid and is closed", id)
		}
		if _, has := db.receipts[id]; has != (o.status == closed) {
			v.violation("order %s has status %d and a receipt: %v", id, o.status, has)
		}
	}
	v.Open = v.several(open, "%d orders are overdue and open, such as %v")
	for _, id := range e.Paid {
		if o, ok := db.orders[id]; !ok || !o.isPaid() {
			v.Inconsistent++
			v.violation("order %s was paid and has status %d", id, o.status)
		}
	}
}

// checkReceipts: no receipt is early, and each receipt has its order.
func (v *Verdict) checkReceipts(db *tables) {
	var early []string
	for id, r := range db.receipts {
		o, ok := db.orders[id]
		if !ok {
			v.violation("receipt without order: %s", id)
			continue
		}
		v.ByPath[r.path]++
		late := r.closedAt.Sub(o.due)
		if late < 0 {
			early = append(early, id)
		}
		if !r.closedAt.Equal(o.closedAt) || !r.due.Equal(o.due) || r.lateness != late {
			v.violation("receipt of %s does not agree with its order: %+v, %+v", id, r, o)
		}
		v.Samples = append(v.Samples, Sample{Due: o.due, Late: late, Path: r.path})
		if r.path == "pipeline" {
			v.Lateness = append(v.Lateness, late)
		}
	}
	v.Early += v.several(early, "%d orders were closed before they were due, such as %v")
}

// checkLedger: a closed or cancelled order has returned exactly the stock that it held, once. A shipped order has taken exactly that stock.
func (v *Verdict) checkLedger(db *tables) {
	for id, o := range db.orders {
		kind, back := map[int]string{closed: "close", cancelled: "cancel", shipped: "ship", confirmed: "ship"}[o.status]
		for sku, quantity := range db.items[id] {
			switch have := db.ledger[id][entry{sku, kind}]; {
			case back && have != quantity:
				v.violation("order %s holds %d of %s and gave back %d", id, quantity, sku, have)
			case !back && len(db.ledger[id]) > 0:
				v.violation("order %s has status %d and gave stock back: %v", id, o.status, db.ledger[id])
			}
		}
		if back && len(db.ledger[id]) != len(db.items[id]) {
			v.violation("order %s gave back %v of %v", id, db.ledger[id], db.items[id])
		}
	}
}

// checkStock: no stock appears or disappears, but for shipped orders, and the reserved stock is what open and paid orders hold.
func (v *Verdict) checkStock(db *tables, e Expect) {
	held, shippedOut := map[string]int64{}, map[string]int64{}
	for id, o := range db.orders {
		if o.status == shipped || o.status == confirmed {
			for sku, quantity := range db.items[id] {
				shippedOut[sku] += quantity
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
		if !ok || have.available+have.reserved+shippedOut[sku] != start {
			v.violation("SKU %s has %d available, %d reserved and %d shipped, and began with %d", sku, have.available, have.reserved, shippedOut[sku], start)
		}
		if have.reserved != held[sku] {
			v.violation("SKU %s has %d reserved, and orders hold %d", sku, have.reserved, held[sku])
		}
	}
	v.StockOK = len(v.Violations) == before
}
