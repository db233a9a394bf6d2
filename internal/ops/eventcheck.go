package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/ops/deadletters"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/wire"
)

// RedriveRules returns the rules of a redrive of this pipeline's dead letters.
func (p Pipeline) RedriveRules() deadletters.Rules {
	return deadletters.Rules{Buckets: p.Config.Buckets, Events: p.Config.Topics.Events, Happened: p.EventHappened}
}

// EventHappened compares an event with the database. It returns why a redrive does not send the event, or "" if the database knows what
// the event says. A redrive asks because every part of the pipeline may write dead letters, and a reader of events may ship goods or
// give money back.
func (p Pipeline) EventHappened(ctx context.Context, m wire.Message) (refusal string) {
	if p.Store == nil {
		return "it is an event, and no database says whether it has happened: name the one in which orders are closed; a service that closes " +
			"orders writes its event again"
	}
	var e struct{ Type, Subject string }
	if err := json.Unmarshal(m.Value, &e); err != nil {
		return "it is no event: " + err.Error()
	}
	if !bytes.Equal(m.Key, []byte(e.Subject)) {
		return fmt.Sprintf("its key is %q, and its order %q", m.Key, e.Subject)
	}
	known, err := p.Store.OrderHistory(ctx, e.Subject)
	if err == nil {
		err = happened(e.Type, e.Subject, m.Value, known, p.Store.AuditRules().Event)
	}
	if err != nil {
		return fmt.Sprintf("%s of order %q: %v", e.Type, e.Subject, err)
	}
	return ""
}

// happened returns an error if what an event says is not in the database. closes is the type of the events of closes. Pure.
func happened(kind, subject string, value []byte, known store.OrderHistory, closes string) (err error) {
	var id, order, want string // of the event, and the id that this program gives such an event
	var unpaid, paid, is bool
	if o := known.Order; o != nil {
		unpaid, paid = o.Status == store.Unpaid || o.Meaning == "unpaid", o.Status == store.Paid || o.Meaning == "paid"
	}
	switch kind {
	case orderclose.EventOrderPaid:
		var e orderclose.OrderPaid
		id, e, err = orderclose.DecodeOrderPaid(value)
		order, want, is = e.OrderID, e.ID(), paid
	case orderclose.EventOrderReminder:
		var e orderclose.OrderReminder
		id, e, err = orderclose.DecodeOrderReminder(value)
		order, want, is = e.OrderID, e.ID(), unpaid
	case orderclose.EventOrderPaidLate:
		var e orderclose.OrderPaidLate
		id, e, err = orderclose.DecodeOrderPaidLate(value)
		order, want, is = e.OrderID, e.ID(), slices.ContainsFunc(known.LatePayments, func(l store.LatePayment) bool {
			return l.PaymentID == e.PaymentID && l.Amount == e.Amount && l.Currency == e.Currency
		})
	case closes:
		var e orderclose.OrderClosed
		id, e, err = orderclose.DecodeClosed(value, closes)
		order, want = e.OrderID, e.ID()
		is = known.Receipt != nil && known.Receipt.ClosedAt.Truncate(time.Millisecond).Equal(e.ClosedAt.Truncate(time.Millisecond)) &&
			releasedAsSaid(e.Release, known.Ledger)
	default:
		return errors.New("orderclose writes no events of this type")
	}
	switch {
	case err != nil:
		return err
	case id != want || order != subject:
		return fmt.Errorf("its id is %q, which orderclose gives to no such event", id)
	case !is: //mutant:invented-event-sent
		return errors.New("the database does not know what it says: see orderclose order")
	}
	return nil
}

// releasedAsSaid reports whether a close has released what an event says.
func releasedAsSaid(says []orderclose.Release, ledger []store.LedgerRow) bool {
	has := map[string]int64{}
	for _, l := range ledger {
		if l.Kind == "close" && l.Quantity > 0 { // 0: left out
			has[l.SKU] = l.Quantity
		}
	}
	return len(says) == len(has) && !slices.ContainsFunc(says, func(r orderclose.Release) bool { return has[r.SKU] != r.Quantity })
}
