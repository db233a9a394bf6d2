package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/store/callback"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// What the shop, the provider, a reader of events, an operator and orderclose do to the payments of an order, in any order, by seed. At the end
// each payment is delivered once (it paid the order, or an operator has delivered it under a new order), or was given back once. The model knows
// what happened to the money, and none of the rules of RecordPayment. The operator and the reader do what docs/runbook.md and docs/wire.md allow,
// and each such step can come before and after each call of the provider. SEED=17 plays one order again, and SEEDS=2000 plays as many on each
// database, from SEED on.
func TestMoney_EachPaymentIsDeliveredOrGivenBackOnce(t *testing.T) {
	eachDatabase(t, eachPaymentEndsOnce)
}

func eachPaymentEndsOnce(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: ordersOf(t, "buckets: [1m]", `
  table: t_order
  id: {column: id, type: text}
  status: {column: state, from: 0, to: 4, paid: [1, 5], closed: [6]}
  due: {column: due, type: unix_ms}
  payment_id: pay_no
  items: none
  stock: none
`)})
	exec(t, s.DB(), "CREATE TABLE t_order (id VARCHAR(64) NOT NULL PRIMARY KEY, state INT NOT NULL, due BIGINT NOT NULL, pay_no VARCHAR(255) NULL)")
	exec(t, s.DB(), "CREATE INDEX st ON t_order (state, due, id)")
	must.Do(t, s.Migrate(t.Context()))
	first, after := ring.Seeds(map[bool]uint64{false: 150, true: 1500}[ring.All()])
	for seed := first; seed < after; seed++ {
		m := &moneyWorld{T: t, Rand: rand.New(rand.NewPCG(seed, 49)), s: s, id: fmt.Sprintf("o%d", seed), payments: map[string]*payment{},
			decided: map[int64]store.LateResolution{}}
		m.automatic = m.IntN(2) == 0
		m.play()
		wrong := m.judge()
		expect.That(t, wrong == "", "seed %d: %s, after\n\t%s", seed, wrong, strings.Join(m.log, "\n\t"))
	}
}

// The statuses of the shop.
const (
	unpaid, isPaid, closedByUs, shipped, cancelled = 0, 1, 4, 5, 6
)

// payment is the money of a customer, as the provider has it.
type payment struct {
	amount  int64
	told    bool // a callback was a success
	refused bool // the last callback was refused: the provider calls again, and somebody sees it
	apart   bool // the operator has delivered the goods under a new order id
	refunds int
	keys    map[string]bool // idempotency keys of refunds
}

// open reports whether the money of a payment was neither given back nor used for a new order.
func (p *payment) open() bool { return p.refunds == 0 && !p.apart }

// anyPayment is the payer of an order that the shop has delivered before it knew which payment paid it.
const anyPayment = "?"

// moneyWorld is one order with everybody who acts on it.
type moneyWorld struct {
	*testing.T
	*rand.Rand
	s         *store.Store
	id        string
	payments  map[string]*payment
	payer     string                         // what the shop has delivered the order for; "": nothing
	automatic bool                           // a reader of the events gives money back
	closed    bool                           // by orderclose: it has a receipt
	marked    bool                           // by orderclose, as paid
	split     bool                           // other orders deliver what it was paid for
	decided   map[int64]store.LateResolution // what the operator did about a late payment, and has not said yet
	log       []string
}

func (m *moneyWorld) did(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// row returns the order as the shop sees it; -1: it is archived.
func (m *moneyWorld) row() (state int, paidBy string) {
	var by sql.NullString
	err := m.s.DB().QueryRowContext(m.Context(), "SELECT state, pay_no FROM t_order WHERE id = '"+m.id+"'").Scan(&state, &by)
	if errors.Is(err, sql.ErrNoRows) {
		return -1, ""
	}
	must.Do(m.T, err)
	return state, by.String
}

func (m *moneyWorld) set(query string) {
	exec(m.T, m.s.DB(), "UPDATE t_order SET "+query+" WHERE id = '"+m.id+"'")
}

func (m *moneyWorld) arrived() (ids []string) {
	for id := range m.payments {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (m *moneyWorld) play() {
	due := must.Get(m.s.Now(m.Context()))(m.T).Add(-time.Minute).UnixMilli()
	exec(m.T, m.s.DB(), fmt.Sprintf("INSERT INTO t_order (id, state, due) VALUES ('%s', 0, %d)", m.id, due))
	for range 6 + m.IntN(24) {
		one(m.Rand, m.pays, m.pays, m.calls, m.calls, m.calls, m.asked, m.close, m.close, m.recheck, m.cancels, m.cancels, m.ships, m.archives,
			m.refundsAPart, m.splits, m.setsBack, m.givesMarkedBack, m.writesID, m.reads, m.operates, m.operates)()
	}
	for _, id := range m.arrived() { // providers call until they are answered
		m.call(id)
	}
	for len(m.late(false)) > 0 {
		m.reads()
		m.operates()
	}
	m.looksAtRefused()
}

// pays: the customer pays. The callback comes later.
func (m *moneyWorld) pays() {
	if id := "p" + strconv.Itoa(len(m.payments)+1); len(m.payments) < 3 {
		m.payments[id] = &payment{amount: int64(100 + m.IntN(3)), keys: map[string]bool{}}
		m.did("%s arrives", id)
	}
}

// calls: a callback, perhaps not the first one of its payment.
func (m *moneyWorld) calls() {
	if ids := m.arrived(); len(ids) > 0 {
		m.call(one(m.Rand, ids...))
	}
}

func (m *moneyWorld) call(id string) {
	p := m.payments[id]
	tx := must.Get(m.s.DB().BeginTx(m.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}))(m.T)
	result, err := callback.RecordPayment(m.Context(), m.s.Payments, orderclose.SQL(tx),
		store.LatePayment{OrderID: m.id, PaymentID: id, Amount: p.amount, Currency: "EUR"})
	if p.refused = errors.Is(err, callback.ErrNoOrder); p.refused {
		must.Do(m.T, tx.Rollback())
	} else {
		must.Do(m.T, errors.Join(err, tx.Commit()))
		p.told = true
	}
	m.did("callback of %s: %s %v", id, result, err)
	m.fulfil()
}

// fulfil: the shop delivers a paid order once, for the payment in its row. For an order without one, which orderclose has marked as paid, it
// knows the payment later, if it does not wait for the callback.
func (m *moneyWorld) fulfil() {
	state, by := m.row()
	switch {
	case state != isPaid && state != shipped:
	case by != "" && (m.payer == "" || m.payer == anyPayment):
		m.payer = by
	case m.payer == "" && m.IntN(2) == 0:
		m.payer = anyPayment
		m.did("the shop delivers, for a payment that it does not know")
	}
}

func (m *moneyWorld) requests() []orderclose.CloseRequest {
	return []orderclose.CloseRequest{{OrderID: m.id}}
}

// money reports whether the provider has money that was not given back.
func (m *moneyWorld) money() bool {
	return m.found() != ""
}

// asked: before a close the provider says that the order is paid, without an id.
func (m *moneyWorld) asked() {
	if state, _ := m.row(); m.money() && state >= 0 {
		out := must.Get(m.s.PayOrders(m.Context(), m.requests()))(m.T)
		m.marked = m.marked || state == unpaid && out[0].Verdict == orderclose.AlreadyPaid
		m.did("the provider is asked: %s", out[0].Verdict)
		m.fulfil()
	}
}

// recheck: after a close the provider says that there is money, without an id.
func (m *moneyWorld) recheck() {
	if state, _ := m.row(); m.money() && (state == closedByUs || state < 0) {
		n := must.Get(m.s.RecordLate(m.Context(), []store.LatePayment{{OrderID: m.id, Source: store.SourceRecheck}}))(m.T)
		m.did("recheck: %d", n)
	}
}

// close: the provider was asked before, and had no money.
func (m *moneyWorld) close() {
	out := must.Get(m.s.CloseOrders(m.Context(), orderclose.PathPipeline, m.requests()))(m.T)
	m.closed = m.closed || out[0].Verdict == orderclose.Closed
	m.did("close: %s", out[0].Verdict)
}

// cancels: the shop cancels an unpaid order, or a paid one whose money it gives back.
func (m *moneyWorld) cancels() {
	state, by := m.row()
	switch {
	case state == unpaid && by != "" && m.payments[by].refunds == 0:
		m.set("state = 6")
		m.refund(by, "shop")
		m.did("the shop cancels the unpaid order, and gives %s back, whose id it has written", by)
	case state == unpaid:
		m.set("state = 6")
		m.did("the shop cancels the unpaid order")
	case (state == isPaid || state == shipped) && by != "":
		m.set("state = 6")
		m.refund(by, "shop")
		m.did("the shop cancels, and gives %s back", by)
	case state == isPaid && m.payer == "": // marked after the provider was asked: the shop finds the payment there
		if id := m.found(); id != "" {
			m.set("state = 6")
			m.refund(id, "shop")
			m.did("the shop cancels the order that has no id of a payment, and gives %s back at the provider", id)
		}
	}
}

// found returns a payment that the shop finds at the provider, and whose money nobody has given back or used; "": there is none.
func (m *moneyWorld) found() string {
	for _, id := range m.arrived() {
		if m.payments[id].open() {
			return id
		}
	}
	return ""
}

// refundsAPart: the shop gives a part of the money of a paid order back, and keeps the rest: nothing more may go back.
func (m *moneyWorld) refundsAPart() {
	state, by := m.row()
	if by == "" {
		by = m.found()
	}
	if p := m.payments[by]; state == isPaid && p != nil && p.open() && (m.payer == "" || m.payer == anyPayment || m.payer == by) {
		m.payer = by
		m.refund(by, "shop")
		m.set("state = " + one(m.Rand, "1", "6"))
		m.did("the shop gives a part of %s back", by)
	}
}

// splits: the shop delivers a paid order as two others, and cancels it.
func (m *moneyWorld) splits() {
	if state, by := m.row(); state == isPaid && m.payer == by && by != "" || state == isPaid && by == "" && m.payer == anyPayment {
		m.set("state = 6")
		m.split = true
		m.did("the shop splits the order")
	}
}

// setsBack: the shop sets a paid order that it has not delivered back to unpaid. Its money stays.
func (m *moneyWorld) setsBack() {
	if state, by := m.row(); state == isPaid && !m.closed && m.payer != anyPayment && (by == "" || m.payments[by].refunds == 0) {
		m.set("state = 0")
		m.payer = ""
		m.did("the shop sets the order back to unpaid")
	}
}

// givesMarkedBack: orderclose had marked the order as paid, the shop has set it back, and another payment has paid it. The shop looks for the
// money of the first at the provider, and gives it back.
func (m *moneyWorld) givesMarkedBack() {
	if state, by := m.row(); m.marked && (state == isPaid || state == shipped) && by != "" {
		for _, id := range m.arrived() {
			if p := m.payments[id]; id != by && m.payer != id && p.open() && !p.told {
				m.refund(id, "shop")
				m.did("the shop gives %s back, for which orderclose had marked the order as paid", id)
				return
			}
		}
	}
}

// writesID: the shop writes the id of a payment that it has found at the provider.
func (m *moneyWorld) writesID() {
	if state, by := m.row(); (state == unpaid || state == isPaid) && by == "" {
		id := m.found()
		if m.payer != "" && m.payer != anyPayment {
			id = m.payer
		}
		if id != "" {
			m.set("pay_no = '" + id + "'")
			m.did("the shop writes the id of %s", id)
			m.fulfil()
		}
	}
}

func (m *moneyWorld) ships() {
	if state, by := m.row(); state == isPaid && by != "" {
		m.set("state = 5")
		m.did("the shop ships")
	}
}

func (m *moneyWorld) archives() {
	if state, _ := m.row(); (state >= closedByUs || state == isPaid && m.payer != "") && m.IntN(2) == 0 {
		exec(m.T, m.s.DB(), "DELETE FROM t_order WHERE id = '"+m.id+"'")
		m.did("the shop archives the order")
	}
}

func (m *moneyWorld) refund(id, key string) {
	if p := m.payments[id]; p != nil && !p.keys[key] {
		p.keys[key] = true
		p.refunds++
	}
}

// late returns the late payments of the order that nobody has resolved, or with all each of them: each has one event.
func (m *moneyWorld) late(all bool) []store.LatePayment {
	return slices.DeleteFunc(must.Get(m.s.LatePayments(m.Context(), all, 100))(m.T), func(p store.LatePayment) bool { return p.OrderID != m.id })
}

func (m *moneyWorld) resolve(p store.LatePayment, how store.LateResolution) {
	must.Get(m.s.ResolveLate(m.Context(), p.ID, how, "ann"))(m.T)
	m.did("late payment %d %q (%s, perhaps same as %v) is resolved: %s", p.ID, p.PaymentID, p.Source, p.PerhapsSame, how)
}

// reads: the reader gets an event, perhaps not for the first time. It does what docs/wire.md says, and may end before it has said so.
func (m *moneyWorld) reads() {
	events := m.late(true)
	if !m.automatic || len(events) == 0 {
		return
	}
	p := one(m.Rand, events...)
	if p.PaymentID == "" || p.Source == store.SourceSameID || p.Resolution != "" {
		return
	}
	m.refund(p.PaymentID, "late")
	m.did("the reader gives %s back", p.PaymentID)
	if m.IntN(2) == 0 {
		m.resolve(p, store.Refunded)
	}
}

// operates: the operator looks at the late payments, at the provider and at the shop, and decides. He says so at once, or later. The payments on
// which the reader acts he leaves to it, or decides while it is stopped.
func (m *moneyWorld) operates() {
	for _, p := range m.late(false) {
		readers := m.automatic && p.Source == store.SourceCallback
		how, decided := m.decided[p.ID]
		if !decided {
			if readers && m.IntN(3) > 0 {
				continue
			}
			how = m.decide(p)
			m.decided[p.ID] = how
			if !readers && m.IntN(2) == 0 {
				continue
			}
		}
		m.resolve(p, how)
	}
}

// decide does something about the money of a late payment. Of one without an id, the operator looks for the order's payments at the provider.
func (m *moneyWorld) decide(p store.LatePayment) store.LateResolution {
	if p.PaymentID != "" {
		return m.decideOn(p.PaymentID)
	}
	rows := m.late(true)
	how, most := store.Refunded, 1+m.IntN(3)
	for _, id := range m.arrived() {
		has := slices.ContainsFunc(rows, func(r store.LatePayment) bool { return r.PaymentID == id })
		if !has && m.payments[id].open() && m.payer != id && most > 0 {
			how = m.decideOn(id)
			most--
		}
	}
	return how
}

func (m *moneyWorld) decideOn(id string) store.LateResolution {
	p := m.payments[id]
	state, _ := m.row()
	how := m.IntN(4)
	switch {
	case p.refunds > 0:
		return store.Refunded
	case p.apart || m.payer == id:
		return store.Reopened
	case m.payer == anyPayment: // the order was delivered for this payment
		m.payer = id
		return store.Reopened
	case how == 0 && state == closedByUs && m.payer == "":
		m.set("state = 1, pay_no = " + one(m.Rand, "NULL", "'"+id+"'"))
		m.payer = id
		m.did("the operator reopens the order for %s", id)
		return store.Reopened
	case how == 1:
		p.apart = true
		m.did("the operator delivers %s under a new order id", id)
		return store.Reopened
	}
	key := one(m.Rand, "late", "page") // the key of the runbook, or the provider's page, which takes none
	m.refund(id, key)
	m.did("the operator gives %s back, with the key %q", id, key)
	return store.Refunded
}

// looksAtRefused: an operator looks at the payments that are still refused. The shop's archive may have the order.
func (m *moneyWorld) looksAtRefused() {
	for _, id := range m.arrived() {
		if p := m.payments[id]; p.refused && p.open() && m.payer != id {
			if m.payer == anyPayment {
				m.payer = id
				continue
			}
			m.refund(id, "page")
			m.did("the operator gives %s back, which is refused", id)
		}
	}
}

// judge returns what is wrong with the money at the end.
func (m *moneyWorld) judge() string {
	state, by := m.row()
	for _, id := range m.arrived() {
		p := m.payments[id]
		delivered := m.payer == id && !p.keys["shop"]
		elsewhere := m.split || state < 0
		on := delivered && (state == isPaid || state == shipped || elsewhere) || p.apart
		switch {
		case p.refused && m.closed:
			return id + " is refused, although the order has a receipt"
		case p.refunds > 1:
			return fmt.Sprintf("%s was given back %d times (%v)", id, p.refunds, p.keys)
		case p.refunds == 1 && on:
			return id + " was given back, and the order is delivered for it"
		case p.apart && delivered:
			return id + " paid the order, and is delivered under a new order id too"
		case p.open() && !delivered:
			return fmt.Sprintf("%s is neither delivered nor given back; the order has the status %d, paid by %q, delivered for %q", id, state, by, m.payer)
		}
	}
	return ""
}
