package closer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/wire"
)

func TestCloser_CommitsNothingWhileTheDatabaseIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		log, store := &orderLog{}, &fakeStore{down: func() bool { return time.Since(begin) < time.Minute }}
		log.add(t, "a")
		defer runCloser(t, log, store, 10)()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		expect.That(t, log.doneBelow() == 0 && len(log.Appended()) == 0, "done below %d, appended %v; want nothing", log.doneBelow(), log.Appended())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		expect.That(t, log.doneBelow() == 1 && len(store.ids()) == 1, "done below %d, closed %v", log.doneBelow(), store.ids())
	})
}

// probedStore is a store whose probe fails until well returns true.
type probedStore struct {
	*fakeStore
	well func() bool
}

func (s probedStore) Probe(context.Context) error {
	if !s.well() {
		return fmt.Errorf("%w: the database accepts no writes", orderclose.ErrUnavailable)
	}
	return nil
}

// With an unknown error every order fails; the probe shows whether the store or an order
// is at fault.
func TestCloser_BlamesNoOrderWhileTheProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &fakeStore{bad: map[string]bool{"a": true, "b": true}}
		log.add(t, "a")
		log.add(t, "b")
		end := time.Now().Add(30 * time.Minute)
		defer runCloser(t, log, probedStore{store, func() bool { return !time.Now().Before(end) }}, 10)()
		time.Sleep(29 * time.Minute)
		expect.That(t, len(log.Appended()) == 0 && log.doneBelow() == 0, "while the probe fails: done below %d, appended %v", log.doneBelow(), log.Appended())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		expect.That(t, len(log.Appended()["delay_1m"]) == 2 && len(log.Appended()) == 1 && log.doneBelow() == 2,
			"after the probe succeeds: done below %d, appended %v; want both to be retried", log.doneBelow(), log.Appended())
	})
}

// The bound also holds in a long outage.
func TestCloser_ReadsALittleAheadWhileTheDatabaseIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, end := &orderLog{}, time.Now().Add(time.Hour)
		store := &fakeStore{down: func() bool { return time.Now().Before(end) }}
		for i := range 2000 {
			id := fmt.Sprint(i)
			o := orderclose.Order{ID: id, CreatedAt: time.Now(), Due: time.Now()}
			log.putAt(t, toClose, wire.Record{Order: o, Release: o.Due}, time.Now().Add(time.Duration(i)*time.Second))
		}
		defer runCloser(t, log, store, 100)()
		time.Sleep(59 * time.Minute)
		expect.Equal(t, log.ReadUpTo(), readAhead, "records that were read")
		time.Sleep(time.Minute + 5*time.Second)
		expect.That(t, len(store.ids()) >= 2000, "after the outage: %d orders were closed", len(store.ids()))
	})
}

// service answers 500 while it is broken, and to any request with an order whose id
// begins with "poison".
type service struct{ broken func() bool }

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if s.broken() || strings.Contains(string(body), `"poison`) {
		w.WriteHeader(http.StatusInternalServerError)
		return w.Result(), nil
	}
	var q struct {
		Orders []struct {
			ID string `json:"order_id"`
		} `json:"orders"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	var verdicts []string
	for _, o := range q.Orders {
		verdicts = append(verdicts, fmt.Sprintf(`{"order_id":%q,"verdict":"closed"}`, o.ID))
	}
	fmt.Fprintf(w, `{"verdicts":[%s]}`, strings.Join(verdicts, ","))
	return w.Result(), nil
}

// The orders that break the service come first in the log. While the service is broken
// for all orders, no order is blamed.
func TestCloser_AnOrderThatBreaksAServiceDelaysNoOther(t *testing.T) {
	for _, batch := range []int{1, 500} {
		for _, down := range []time.Duration{0, 10 * time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				s := must.Get(httpclose.New(httpclose.Options{
					URL: "http://service", Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
					Transport: &service{broken: func() bool { return time.Since(begin) < down }},
				}))(t)
				defer func() { _ = s.Close() }()
				log := &orderLog{}
				log.add(t, "poison-1")
				log.add(t, "poison-2")
				o := orderclose.Order{ID: "good", CreatedAt: begin, Due: begin.Add(5 * time.Second)}
				log.putAt(t, toClose, wire.Record{Order: o, Release: o.Due}, o.Due)
				defer runCloser(t, log, s, batch)()
				if down > 0 {
					time.Sleep(down - time.Second)
					expect.That(t, log.doneBelow() == 0 && len(log.Appended()) == 0,
						"batches of %d: while the service is broken: done below %d, appended %v", batch, log.doneBelow(), log.Appended())
				}
				time.Sleep(12 * time.Second)
				retried := log.Appended()["delay_1m"]
				expect.That(t, log.doneBelow() == 3 && len(retried) == 2 && len(log.Appended()) == 1,
					"batches of %d, broken for %v: done below %d, appended %v; want both poison orders to be retried", batch, down, log.doneBelow(), log.Appended())
				for _, m := range retried {
					r, err := m.Decode()
					expect.That(t, err == nil && r.Attempt == 1 && strings.HasPrefix(r.Order.ID, "poison"), "%+v, %v", r, err)
				}
			})
		}
	}
}

// hanging is a store that hangs for the duration took on the orders that on selects.
type hanging struct {
	*fakeStore
	on   func(id string) bool
	took time.Duration
}

func (s hanging) CloseOrders(ctx context.Context, path orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	for _, r := range requests {
		if s.on(r.OrderID) {
			time.Sleep(s.took)
			return nil, fmt.Errorf("%w: no answer in time", orderclose.ErrUnavailable)
		}
	}
	return s.fakeStore.CloseOrders(ctx, path, requests)
}

// The other orders are closed meanwhile. While the store hangs on all orders, no order is
// blamed.
func TestCloser_OrdersThatMakeTheStoreHangUseUpTheirRetries(t *testing.T) {
	for _, outage := range []time.Duration{0, 20 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			begin, log := time.Now(), &orderLog{}
			store := hanging{&fakeStore{}, func(id string) bool {
				return strings.HasPrefix(id, "poison") || time.Since(begin) < outage
			}, 3 * time.Second}
			log.add(t, "poison-1")
			log.add(t, "poison-2")
			for i := range 200 { // one each two seconds, from the end of the outage on
				due := begin.Add(outage + time.Duration(i)*2*time.Second)
				o := orderclose.Order{ID: fmt.Sprint("good-", i), CreatedAt: begin, Due: due}
				log.putAt(t, toClose, wire.Record{Order: o, Release: due}, due)
			}
			defer runCloser(t, log, store, 500)()
			time.Sleep(outage - time.Second)
			expect.Equal(t, len(log.Appended()), 0, "topics with appended records while the store hangs on all orders")
			time.Sleep(400*time.Second + 10*time.Second)
			synctest.Wait()
			retried := log.Appended()["delay_1m"]
			expect.That(t, len(store.ids()) == 200 && len(retried) == 2 && len(log.Appended()) == 1 && log.doneBelow() == 202,
				"%d closed, %d retried, done below %d; want 200, 2 and 202", len(store.ids()), len(retried), log.doneBelow())
			for i := range 200 {
				due := begin.Add(outage + time.Duration(i)*2*time.Second)
				expect.AtMost(t, store.at(fmt.Sprint("good-", i)).Sub(due), 12*time.Second, "the lateness of order %d", i)
			}
		})
	}
}

// Each failure costs 3 s, so the search for the five must fail seldom.
func TestCloser_FiveOrdersThatHangInABatchDelayTheOthersForLessThanAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, begin := &orderLog{}, &fakeStore{slow: func(int) time.Duration { return 10 * time.Millisecond }}, time.Now()
		for i := range 500 {
			id := fmt.Sprint("good-", i)
			if i%100 == 7 {
				id = fmt.Sprint("poison-", i)
			}
			log.add(t, id)
		}
		poison := func(id string) bool { return strings.HasPrefix(id, "poison") }
		stop := runCloser(t, log, hanging{store, poison, 3 * time.Second}, 500)
		time.Sleep(5 * time.Minute)
		var sum, worst time.Duration
		for _, id := range store.ids() {
			late := store.at(id).Sub(begin)
			sum, worst = sum+late, max(worst, late)
		}
		if n := len(store.ids()); n != 495 || sum/time.Duration(n) > 45*time.Second || worst > 70*time.Second {
			t.Errorf("%d of 495 orders were closed, %v late on average, %v at worst", n, sum/time.Duration(max(n, 1)), worst)
		}
		stop()
		time.Sleep(4 * time.Second) // until a call that hangs has ended
	})
}
