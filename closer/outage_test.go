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
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

func TestCloser_CommitsNothingWhileTheDatabaseIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &orderLog{}, &testkit.Store{On: down(time.Now().Add(time.Minute))}
		log.add(t, "a")
		defer runCloser(t, log, store, 10)()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		expect.That(t, log.doneBelow() == 0 && len(log.Appended()) == 0, "done below %d, appended %v; want nothing", log.doneBelow(), log.Appended())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		expect.That(t, log.doneBelow() == 1 && len(store.Closed()) == 1, "done below %d, closed %v", log.doneBelow(), store.Closed())
	})
}

// With an unknown error every order fails; the probe shows whether the store or an order is at fault.
func TestCloser_BlamesNoOrderWhileTheProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, probe := &orderLog{}, down(time.Now().Add(30*time.Minute))
		log.add(t, "a")
		log.add(t, "b")
		store := testkit.ProbedStore{Store: &testkit.Store{On: testkit.FailsOn("")}, Probes: func(ctx context.Context) error { return probe(ctx, nil) }}
		defer runCloser(t, log, store, 10)()
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
		log, store := &orderLog{}, &testkit.Store{On: down(time.Now().Add(time.Hour))}
		for i := range 2000 {
			log.addAt(t, 0, fmt.Sprint(i), time.Now().Add(time.Duration(i)*time.Second))
		}
		defer runCloser(t, log, store, 100)()
		time.Sleep(59 * time.Minute)
		expect.Equal(t, log.ReadUpTo(), readAhead, "records that were read")
		time.Sleep(time.Minute + 5*time.Second)
		expect.That(t, len(store.Closed()) >= 2000, "after the outage: %d orders were closed", len(store.Closed()))
	})
}

// service answers 500 while it is broken, and to any request with an order whose id begins with "poison".
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

// The orders that break the service come first in the log. While the service is broken for all orders, no order is blamed.
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
				log.addAt(t, 0, "good", begin.Add(5*time.Second))
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

// hangs is a Store.On that hangs for three seconds on orders whose ids begin with "poison", and until a time on all.
func hangs(until time.Time) func(context.Context, []orderclose.CloseRequest) error {
	return func(_ context.Context, requests []orderclose.CloseRequest) error {
		if testkit.Asks(requests, "poison") || time.Now().Before(until) {
			time.Sleep(3 * time.Second)
			return fmt.Errorf("%w: no answer in time", orderclose.ErrUnavailable)
		}
		return nil
	}
}

// The other orders are closed meanwhile. While the store hangs on all orders, no order is blamed.
func TestCloser_OrdersThatMakeTheStoreHangUseUpTheirRetries(t *testing.T) {
	for _, outage := range []time.Duration{0, 20 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			begin, log := time.Now(), &orderLog{}
			store := &testkit.Store{On: hangs(begin.Add(outage))}
			log.add(t, "poison-1")
			log.add(t, "poison-2")
			for i := range 200 { // one each two seconds, from the end of the outage on
				log.addAt(t, 0, fmt.Sprint("good-", i), begin.Add(outage+time.Duration(i)*2*time.Second))
			}
			defer runCloser(t, log, store, 500)()
			time.Sleep(outage - time.Second)
			expect.Equal(t, len(log.Appended()), 0, "topics with appended records while the store hangs on all orders")
			time.Sleep(400*time.Second + 10*time.Second)
			synctest.Wait()
			retried := log.Appended()["delay_1m"]
			expect.That(t, len(store.Closed()) == 200 && len(retried) == 2 && len(log.Appended()) == 1 && log.doneBelow() == 202,
				"%d closed, %d retried, done below %d; want 200, 2 and 202", len(store.Closed()), len(retried), log.doneBelow())
			for i := range 200 {
				due := begin.Add(outage + time.Duration(i)*2*time.Second)
				expect.AtMost(t, store.ClosedAt(fmt.Sprint("good-", i)).Sub(due), 12*time.Second, "the lateness of order %d", i)
			}
		})
	}
}

// Each failure costs 3 s, so the search for the five must fail seldom.
func TestCloser_FiveOrdersThatHangInABatchDelayTheOthersForLessThanAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, begin := &orderLog{}, &testkit.Store{On: hangs(time.Time{}), Takes: always(10 * time.Millisecond)}, time.Now()
		for i := range 500 {
			id := fmt.Sprint("good-", i)
			if i%100 == 7 {
				id = fmt.Sprint("poison-", i)
			}
			log.add(t, id)
		}
		stop := runCloser(t, log, store, 500)
		time.Sleep(5 * time.Minute)
		var sum, worst time.Duration
		for _, id := range store.Closed() {
			late := store.ClosedAt(id).Sub(begin)
			sum, worst = sum+late, max(worst, late)
		}
		if n := len(store.Closed()); n != 495 || sum/time.Duration(n) > 45*time.Second || worst > 70*time.Second {
			t.Errorf("%d of 495 orders were closed, %v late on average, %v at worst", n, sum/time.Duration(max(n, 1)), worst)
		}
		stop()
		time.Sleep(4 * time.Second) // until a call that hangs has ended
	})
}
