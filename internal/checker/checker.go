// Package checker says whether the promises were kept. It reads only Kafka and
// the database, with clients and queries of its own, and shares no code with the
// stages that it judges.
//
//	database.go what the tables of the reference schema say
//	log.go      what the topics say
//	checker.go  the verdict
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
	// CloseTopic and DeadLetterTopic are where records go from there.
	CloseTopic, DeadLetterTopic string
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
	StockOK   bool
	Lateness  []time.Duration // of every closed order that came by the pipeline, sorted
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
	v := &Verdict{Orders: len(db.orders), ByPath: map[string]int{}}
	v.judgeOrders(db, e)
	v.judgeReceipts(db)
	v.judgeLedger(db)
	v.judgeStock(db, e)
	v.judgeLogs(l, e)
	slices.Sort(v.Lateness)
	return v
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
		case paid:
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
		if o, ok := db.orders[id]; !ok || o.status != paid {
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

// judgeLedger: what was closed or cancelled gave back just what it held, once.
func (v *Verdict) judgeLedger(db *tables) {
	for id, o := range db.orders {
		kind, back := map[int]string{closed: "close", cancelled: "cancel"}[o.status]
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

// judgeStock: nothing came or went, and what is reserved is what open and paid
// orders hold.
func (v *Verdict) judgeStock(db *tables, e Expect) {
	held := map[string]int64{}
	for id, o := range db.orders {
		if o.status == unpaid || o.status == paid {
			for sku, quantity := range db.items[id] {
				held[sku] += quantity
			}
		}
	}
	before := len(v.Violations)
	for sku, start := range e.Stock {
		have, ok := db.stock[sku]
		if !ok || have.available+have.reserved != start {
			v.blame("SKU %s has %d available and %d reserved, and began with %d", sku, have.available, have.reserved, start)
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
	for topic, group := range e.Delays {
		for _, r := range l.records[topic] {
			committed, ok := l.committed[group][r.partition]
			if ok && r.offset < committed && !l.arrived[r.key] && !l.later(r) {
				gone = append(gone, fmt.Sprintf("%s at %s/%d/%d", r.key, topic, r.partition, r.offset))
			}
		}
		for p, committed := range l.committed[group] {
			if end := l.ends[topic][p]; committed > end {
				v.blame("group %s has committed %d of %s/%d, which ends at %d", group, committed, topic, p, end)
			}
		}
	}
	if len(gone) > 0 {
		v.blame("%d records were committed and went nowhere, such as %v", len(gone), some(gone))
	}
	var early []string
	for _, r := range l.records[e.CloseTopic] {
		if r.brokerTime && r.hasDue && r.appended.Before(r.due) {
			early = append(early, fmt.Sprintf("%s by %v", r.key, r.due.Sub(r.appended)))
		}
	}
	if v.Early += len(early); len(early) > 0 {
		v.blame("%d records were in the close topic before they were due, such as %v", len(early), some(early))
	}
}

func some(all []string) []string {
	slices.Sort(all)
	return all[:min(len(all), maxNamed)]
}
