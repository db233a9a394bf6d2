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

// What shop, provider, operator and orderclose do to the payments of an order, in any order, by seed. At the end each payment is delivered (it
// paid the order), was given back once, or is one question that somebody sees. The model knows what happened to the money, and none of
// the rules of RecordPayment. SEED=17 plays one order again, and SEEDS=2000 plays as many on each database, from SEED on.
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
		m := &moneyWorld{T: t, Rand: rand.New(rand.NewPCG(seed, 49)), s: s, id: fmt.Sprintf("o%d", seed), payments: map[string]*payment{}}
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
	refunds int
	keys    map[string]bool // idempotency keys of refunds
}

// anyPayment is the payer of an order that the shop has delivered before it knew which payment paid it.
const anyPayment = "?"

// moneyWorld is one order with everybody who acts on it.
type moneyWorld struct {
	*testing.T
	*rand.Rand
	s         *store.Store
	id        string
	payments  map[string]*payment
	payer     string // what the shop has delivered the order for; "": nothing
	automatic bool   // a reader of the events gives money back, else an operator
	closed    bool   // by orderclose: it has a receipt
	split     bool   // other orders deliver what it was paid for
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
			m.refundsAPart, m.splits, m.setsBack, m.writesID, m.givesBack, m.givesBack)()
	}
	for _, id := range m.arrived() { // providers call until they are answered
		m.call(id)
	}
	for range 6 { // until no question is left
		m.givesBack()
	}
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
	return slices.ContainsFunc(m.arrived(), func(id string) bool { return m.payments[id].refunds == 0 })
}

// asked: before a close the provider says that the order is paid, without an id.
func (m *moneyWorld) asked() {
	if state, _ := m.row(); m.money() && state >= 0 {
		out := must.Get(m.s.PayOrders(m.Context(), m.requests()))(m.T)
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

// found returns a payment that the shop finds at the provider, and that nobody has given back; "": there is none.
func (m *moneyWorld) found() string {
	for _, id := range m.arrived() {
		if p := m.payments[id]; p.refunds == 0 {
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
	if p := m.payments[by]; state == isPaid && p != nil && p.refunds == 0 && (m.payer == "" || m.payer == anyPayment || m.payer == by) {
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

// writesID: the shop writes the id of a payment that it has found at the provider.
func (m *moneyWorld) writesID() {
	if state, by := m.row(); (state == unpaid || state == isPaid) && by == "" {
		if id := m.found(); id != "" {
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

// givesBack: a reader of events gives back each late payment with an id, by the id of the event, and an operator the others. The
// operator sees at the provider what was given back before, and what the order was delivered for.
func (m *moneyWorld) givesBack() {
	for _, p := range must.Get(m.s.LatePayments(m.Context(), false, 100))(m.T) {
		if p.OrderID != m.id {
			continue
		}
		id, how := p.PaymentID, store.Refunded
		state, _ := m.row()
		switch {
		case m.automatic && id != "" && p.Source == store.SourceCallback:
			m.refund(id, "late")
		case id != "" && !m.automatic && state == closedByUs && m.payer == "" && m.payments[id].refunds == 0 && m.IntN(2) == 0:
			m.set("state = 1, pay_no = " + one(m.Rand, "NULL", "'"+id+"'"))
			m.payer, how = id, store.Reopened
		case id != "" && m.payments[id].refunds == 0 && m.payer == anyPayment: // the order was delivered for this payment
			m.payer, how = id, store.Reopened
		case id != "" && m.payments[id].refunds == 0 && m.payer != id:
			m.refund(id, "late")
		case id == "" && len(p.PerhapsSame) == 0: // which money is it? that nobody has asked about
			for _, other := range m.arrived() {
				if m.payments[other].refunds == 0 && m.payer != other && !m.payments[other].told {
					m.refund(other, "late")
					break
				}
			}
		}
		must.Get(m.s.ResolveLate(m.Context(), p.ID, how, "ann"))(m.T)
		m.did("late payment %q (%s, perhaps same as %v): %s", id, p.Source, p.PerhapsSame, how)
	}
}

// judge returns what is wrong with the money at the end.
func (m *moneyWorld) judge() string {
	state, by := m.row()
	for _, id := range m.arrived() {
		p := m.payments[id]
		delivered := m.payer == id && !p.keys["shop"]
		elsewhere := m.split || state < 0
		switch {
		case p.refused && m.closed:
			return id + " is refused, although the order has a receipt"
		case p.refunds > 1:
			return fmt.Sprintf("%s was given back %d times (%v)", id, p.refunds, p.keys)
		case p.refunds == 1 && delivered && (state == isPaid || state == shipped || elsewhere):
			return id + " was given back, and the order is delivered for it"
		case p.refunds == 0 && !delivered && !p.refused:
			return fmt.Sprintf("%s is neither delivered nor given back; the order has the status %d, paid by %q, delivered for %q", id, state, by, m.payer)
		}
	}
	return ""
}
