package compensator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// asked is an Investigator that records the calls, and returns OnItsWay for all orders.
type asked struct {
	store *fakeStore
	fails bool
	began int // orders that were open when Begin was called
	pages [][]orderclose.Order
}

func (a *asked) Begin(context.Context) (Investigation, error) {
	a.began = a.store.open()
	if a.fails {
		return nil, errors.New("away")
	}
	return a, nil
}

func (a *asked) Explain(_ context.Context, missed []orderclose.Order) []Miss {
	a.pages = append(a.pages, missed)
	misses := make([]Miss, len(missed))
	for i, o := range missed {
		misses[i] = Miss{Order: o, Cause: OnItsWay, Fix: "orderclose order ID"}
	}
	return misses
}

func TestSweep_LooksUpCausesAfterEachPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(250)
		s.bad, s.paid = map[string]bool{"o0007": true}, map[string]bool{"o0008": true}
		a := &asked{store: s}
		r, err := newCompensator(t, Options{Store: s, Investigator: a, PageSize: 100, Grace: -1}).Sweep(t.Context(), false)
		must.That(t, err == nil && a.began == 51 && len(a.pages) == 3 && len(a.pages[0]) == 98 && a.pages[0][7].ID == "o0009",
			"%v; Begin was called with %d open orders, Explain for %d pages", err, a.began, len(a.pages))
		expect.That(t, r.Causes[string(OnItsWay)] == 248 && len(r.Misses) == 100 && r.Misses[0].Order.ID == "o0000", "causes %v, %d misses", r.Causes, len(r.Misses))
	})
}

func TestSweep_ClosesOrdersWithoutAnInvestigation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(12)
		r, err := newCompensator(t, Options{Store: s, Investigator: &asked{store: s, fails: true}, Grace: -1}).Sweep(t.Context(), false)
		expect.That(t, err == nil && r.Closed == 12 && r.Causes == nil, "%+v, %v", r, err)
	})
}

func TestMiss_JSONHasTheFieldNamesOfRecords(t *testing.T) {
	m := Miss{orderclose.Order{ID: "o", Category: "virtual", Due: time.UnixMilli(1_700_000_000_000).UTC()}, OnItsWay, "delay_5m/3", "orderclose status"}
	b, err := json.Marshal(m)
	expect.That(t, err == nil && strings.HasPrefix(string(b), `{"order_id":"o","category":"virtual","due_at":"2023-11-14T22:13:20Z","cause":"on_its_way"`),
		"%s, %v", b, err)
	var back Miss
	if err := json.Unmarshal(b, &back); err != nil || back.Order.ID != m.Order.ID || back.Where != m.Where || !back.Order.Due.Equal(m.Order.Due) {
		t.Errorf("%+v, %v", back, err)
	}
}
