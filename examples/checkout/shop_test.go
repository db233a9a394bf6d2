package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/pipeline"
	"github.com/orderclose/orderclose/producer"
)

// ways lists the events that bring an order to each state.
var ways = map[checkout.State][]checkout.Event{
	checkout.Unpaid:    nil,
	checkout.Paid:      {checkout.Pay},
	checkout.Shipped:   {checkout.Pay, checkout.Ship},
	checkout.Confirmed: {checkout.Pay, checkout.Ship, checkout.Confirm},
	checkout.Cancelled: {checkout.Cancel},
	checkout.Closed:    {checkout.Close},
}

// events are the API's paths of events, under the order.
var events = map[checkout.Event]string{
	checkout.Pay: "payments", checkout.Cancel: "cancel", checkout.Ship: "ship", checkout.Confirm: "confirm",
}

// accepted are the events that an order accepts, and the states to which they bring it.
var accepted = map[checkout.State]map[checkout.Event]checkout.State{
	checkout.Unpaid:  {checkout.Pay: checkout.Paid, checkout.Cancel: checkout.Cancelled},
	checkout.Paid:    {checkout.Ship: checkout.Shipped},
	checkout.Shipped: {checkout.Confirm: checkout.Confirmed},
}

func TestShop_EveryPairOfStateAndEvent(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		for state, way := range ways {
			for event, path := range events {
				id := string(state) + "-" + string(event)
				o := r.create(id)
				if state == checkout.Closed {
					time.Sleep(time.Until(o.DueAt))
				} else {
					r.do(id, way...)
				}
				r.same("the way there", r.get(id).Status, state)
				if next, ok := accepted[state][event]; ok {
					r.do(id, event)
					r.same(id, r.get(id).Status, next)
					continue
				}
				before := r.dump()
				for _, header := range [][]string{nil, {checkout.HeaderKey, id}} {
					p := problem(t, r.want(409, "POST", "/orders/"+id+"/"+path, "", header...))
					expect.That(t, p.Order != nil && p.Order.Status == state && p.Order.ID == id, "%s: the problem does not show the order: %+v", id, p)
				}
				r.same("the database after "+id, r.dump(), before)
			}
		}
		time.Sleep(5 * time.Minute)
		for _, id := range r.rows("SELECT id FROM orders WHERE status = 0") { // no pipeline runs
			r.same("status of "+id, r.get(id).Status, checkout.Closed)
		}
		r.check()
	})
}

func TestShop_AnUnpaidOrderIsClosed(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.start(pipeline.AllRoles()...)
		r.read(r.shop)
		time.Sleep(10 * time.Second)
		var o checkout.Order
		r.want(201, "POST", "/orders", basket("a", 30)).into(t, &o)
		expect.That(t, o.Status == checkout.Unpaid && o.SecondsLeft == 300 && o.DueAt.Sub(o.CreatedAt) == 5*time.Minute && o.Version == 1, "created: %+v", o)
		time.Sleep(90*time.Second + time.Millisecond)
		left := r.get("a")
		expect.That(t, left.SecondsLeft == 210 && left.Status == checkout.Unpaid, "after a minute and a half: %+v", left)
		r.same("stock", r.want(200, "GET", "/stock/ink", "").Body, `{"sku":"ink","available":99998,"reserved":2}`+"\n")
		time.Sleep(time.Until(o.DueAt.Add(time.Second)))
		closed := r.get("a")
		expect.That(t, closed.Status == checkout.Closed && closed.SecondsLeft == 0 && closed.Version == 2, "past due: %+v", closed)
		r.same("receipts", r.rows("SELECT order_id, path, lateness_ms FROM receipts"), []string{"a pipeline 0"})
		r.same("stock", r.want(200, "GET", "/stock/ink", "").Body, `{"sku":"ink","available":100000,"reserved":0}`+"\n")
		r.dispatch()
		time.Sleep(10 * time.Second)
		c := r.customer()
		expect.That(t, c.Points == checkout.DefaultWelcome && len(c.Notifications) == 1 && strings.Contains(c.Notifications[0], "order a was closed") &&
			strings.Contains(c.Notifications[0], "30 points back"), "%+v", c)
		r.check()
	})
}

// dispatch publishes the rows of the outbox, each twice, if no dispatcher runs.
func (r *rig) dispatch() {
	r.t.Helper()
	for _, id := range r.rows("SELECT order_id FROM outbox_events ORDER BY id") {
		for _, payload := range r.rows("SELECT payload FROM outbox_events WHERE order_id = ?", id) {
			r.publish(2, id, string(store.ExpandEvent(id, []byte(payload))))
		}
	}
}

// A rule says that an order by bank transfer is never closed: not by a record, a sweep or a read. It can be paid hours later. No order that is paid in
// time is closed either.
func TestShop_AnOrderByBankTransferWaitsForItsMoney(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.start(pipeline.AllRoles()...)
		r.want(201, "POST", "/orders", `{"id":"a","customer":"ann","category":"virtual","payment_method":"bank_transfer","items":[{"sku":"ink","quantity":2}]}`)
		time.Sleep(40 * time.Minute)
		o := r.get("a")
		expect.That(t, o.Status == checkout.Unpaid && o.DueAt.IsZero() && o.SecondsLeft == 0, "after forty minutes: %+v", o)
		page := r.want(200, "GET", "/orders/a/page", "").Body
		expect.That(t, strings.Contains(page, "stays open until the money arrives") && !strings.Contains(page, "data-seconds"), "%v", page)
		r.pay("a")
		r.create("punctual")
		r.do("punctual", checkout.Pay, checkout.Ship)
		time.Sleep(10 * time.Minute) // past its due time
		r.do("punctual", checkout.Confirm)
		v := r.check("a", "punctual")
		expect.That(t, v.Paid == 2 && v.Closed() == 0, "%d paid, %d closed", v.Paid, v.Closed())
	})
}

// Many orders are due at one instant, when the pipeline, reading customers and the provider's callbacks all work on them.
func TestShop_PaymentsRaceTheClose(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		const orders = 150
		r.start(pipeline.AllRoles()...)
		time.Sleep(10 * time.Second)
		var due time.Time
		payments := map[string]string{}
		for i := range orders {
			id := fmt.Sprintf("o%03d", i)
			due = r.create(id).DueAt
			payments[id] = r.startPayment(id)
		}
		time.Sleep(time.Until(due))
		var mu sync.Mutex
		var paid []string
		refunds := 0
		var wg sync.WaitGroup
		for id, payment := range payments {
			wg.Go(func() {
				for range 2 { // the provider calls twice
					p := r.callback(payment)
					mu.Lock()
					switch {
					case p.Outcome == "paid" && p.Order.Status == checkout.Paid:
						paid = append(paid, id)
					case p.Outcome == "refund" && p.Order.Status == checkout.Closed:
						refunds++
					default:
						t.Errorf("%+v", p)
					}
					mu.Unlock()
				}
			})
			wg.Go(func() {
				o := r.get(id)
				expect.That(t, o.Status != checkout.Unpaid, "%s is shown unpaid past due", id)
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		v := r.check(paid...)
		expect.That(t, v.Paid*2 == len(paid) && v.Closed()*2 == refunds && v.Paid+v.Closed() == orders,
			"%d paid, %d payments accepted; %d closed, %d refunds", v.Paid, len(paid), v.Closed(), refunds)
		r.same("late payments", len(r.rows("SELECT order_id FROM late_payments")), v.Closed())
		t.Logf("%d paid, closed %v", v.Paid, v.ByPath)
	})
}

func TestShop_ReadingAnOrderPastDueClosesIt(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		o := r.create("a")
		time.Sleep(time.Until(o.DueAt) - time.Millisecond)
		r.same("a millisecond before", r.get("a").Status, checkout.Unpaid)
		time.Sleep(time.Millisecond)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				o := r.get("a")
				expect.That(t, o.Status == checkout.Closed, "%+v", o)
			})
		}
		wg.Wait()
		r.same("receipts", r.rows("SELECT order_id, path, lateness_ms FROM receipts"), []string{"a touch 0"})
		r.start(pipeline.AllRoles()...) // the pipeline starts later, and finds nothing to do
		time.Sleep(time.Minute)
		r.same("receipts", r.rows("SELECT order_id, path FROM receipts"), []string{"a touch"})
		r.same("events", len(r.rows("SELECT id FROM outbox_events")) <= 1, true)
		r.check()
	})
}

func TestShop_PastDueNoPaymentIsStartedAndACallbackIsAccepted(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		o := r.create("called")
		payment := r.startPayment("called")
		r.create("asked")
		time.Sleep(time.Until(o.DueAt.Add(time.Minute)))
		p := problem(t, r.want(409, "POST", "/orders/asked/payments", ""))
		expect.That(t, p.Order != nil && p.Order.Status == checkout.Closed && strings.Contains(p.Hint, "new order"), "%+v", p)
		called := r.callback(payment)
		expect.That(t, called.Outcome == "paid" && called.Order.Status == checkout.Paid, "callback past due of an unpaid order: %+v", called)
		r.same("status", r.get("called").Status, checkout.Paid)
		r.same("receipts", r.rows("SELECT order_id, path FROM receipts"), []string{"asked touch"})
	})
}

func TestShop_ACallbackWhoseWriteHasNoEffectIsCalledAgain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.create("late")
		payment := r.startPayment("late")
		_, err := r.world.DB().Exec("CREATE TRIGGER keep BEFORE UPDATE ON orders BEGIN SELECT RAISE(IGNORE); END")
		r.must(err)
		r.want(500, "POST", "/payments/callback", `{"payment_id": "`+payment+`"}`)
		_, err = r.world.DB().Exec("DROP TRIGGER keep")
		r.must(err)
		r.same("outcome", r.callback(payment).Outcome, "paid")
	})
}

func TestShop_ACallbackAfterTheCloseIsRecordedOnce(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		o := r.create("closed")
		r.create("cancelled")
		r.create("twice")
		late := map[string]string{}
		for _, id := range []string{"closed", "cancelled", "twice"} {
			late[id] = r.startPayment(id)
		}
		r.do("cancelled", checkout.Cancel)
		r.pay("twice")
		time.Sleep(time.Until(o.DueAt))
		r.get("closed")
		for range 3 {
			for id, payment := range late {
				p := r.callback(payment)
				expect.That(t, p.Outcome == "refund" && p.Order.ID == id, "%s: %+v", id, p)
			}
		}
		r.same("late payments", r.rows("SELECT order_id, payment_id FROM late_payments ORDER BY order_id"),
			[]string{"cancelled " + late["cancelled"], "closed " + late["closed"], "twice " + late["twice"]})
		r.same("events", len(r.rows("SELECT order_id FROM outbox_events WHERE payload LIKE '%order.paid_late%'")), 3)
		r.same("statuses", []checkout.State{r.get("closed").Status, r.get("cancelled").Status, r.get("twice").Status},
			[]checkout.State{checkout.Closed, checkout.Cancelled, checkout.Paid})
	})
}

func TestShop_ARepeatedRequestHasOneEffectAndOneAnswer(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		same := func(method, path, body, key string) response {
			t.Helper()
			answers := make([]response, 20)
			var wg sync.WaitGroup
			for i := range answers {
				wg.Go(func() { answers[i] = r.call(method, path, body, checkout.HeaderKey, key) })
			}
			wg.Wait()
			repeats := 0
			for _, a := range answers {
				expect.That(t, a.Code == answers[0].Code && a.Body == answers[0].Body && a.Code/100 == 2,
					"%s %s: %d %s, and %d %s", method, path, answers[0].Code, answers[0].Body, a.Code, a.Body)
				if a.Header.Get(checkout.HeaderRepeated) != "" {
					repeats++
				}
			}
			r.same("repeats of "+path, repeats, len(answers)-1)
			return answers[0]
		}
		noID := `{"customer":"ann","points":5,"items":[{"sku":"ink","quantity":1}]}`
		var o checkout.Order
		same("POST", "/orders", noID, "k1").into(t, &o)
		r.same("orders", r.rows("SELECT id FROM orders"), []string{o.ID})
		r.same("points", r.rows("SELECT points FROM checkout_customers"), []string{"95"})
		same("POST", "/orders/"+o.ID+"/payments", "", "k2")
		r.same("payments", len(r.rows("SELECT * FROM checkout_payments")), 1)
		same("POST", "/orders/"+o.ID+"/cancel", "", "k3")
		r.same("ledger", r.rows("SELECT order_id, kind, quantity FROM stock_ledger"), []string{o.ID + " cancel 1"})
		r.same("points after the cancel", r.rows("SELECT points FROM checkout_customers"), []string{"100"})

		problem(t, r.want(422, "POST", "/orders", strings.Replace(noID, ":5", ":6", 1), checkout.HeaderKey, "k1"))
		problem(t, r.want(422, "POST", "/orders/other/cancel", "", checkout.HeaderKey, "k3"))
		problem(t, r.want(400, "POST", "/orders", noID, checkout.HeaderKey, strings.Repeat("k", 201)))

		// A refused request had no effect, and may be sent again with its key.
		r.create("b")
		problem(t, r.want(409, "POST", "/orders/b/ship", "", checkout.HeaderKey, "k4"))
		r.pay("b")
		r.want(200, "POST", "/orders/b/ship", "", checkout.HeaderKey, "k4")

		_, err := r.world.DB().Exec("UPDATE checkout_requests SET created_at = created_at - ?", (25 * time.Hour).Milliseconds())
		r.must(err)
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		r.shop.DeleteOldRows(ctx)
		r.same("requests after a day", len(r.rows("SELECT * FROM checkout_requests")), 0)
	})
}

func TestShop_BadRequestsChangeNothing(t *testing.T) {
	inBubble(t, func(o *checkout.Options) { o.CallbackSecret = "secret" }, func(r *rig) {
		r.create("a")
		before := r.dump()
		good := basket("b", 0)
		for _, c := range []struct {
			code               int
			method, path, body string
		}{
			{400, "POST", "/orders", ""},
			{400, "POST", "/orders", "[]"},
			{400, "POST", "/orders", good + "{}"},
			{400, "POST", "/orders", strings.Replace(good, `"points"`, `"pionts"`, 1)},
			{400, "POST", "/orders", strings.Replace(good, `"ann"`, `""`, 1)},
			{400, "POST", "/orders", strings.Replace(good, `"b"`, `" b"`, 1)},
			{400, "POST", "/orders", strings.Replace(good, `:2}`, `:0}`, 1)},
			{400, "POST", "/orders", strings.Replace(good, `:2}`, `:1000001}`, 1)},
			{400, "POST", "/orders", strings.Replace(good, `"ink"`, `""`, 1)},
			{400, "POST", "/orders", `{"customer":"ann","items":[]}`},
			{400, "POST", "/orders", strings.Replace(good, `"points":0`, `"points":-1`, 1)},
			{409, "POST", "/orders", strings.Replace(good, `"points":0`, `"points":101`, 1)},
			{409, "POST", "/orders", strings.Replace(good, `"nib"`, `"none"`, 1)},
			{409, "POST", "/orders", basket("a", 0)},
			{413, "POST", "/orders", strings.Repeat(" ", 65<<10)},
			{413, "POST", "/orders/a/cancel", strings.Repeat(" ", 65<<10)},
			{404, "GET", "/orders/x", ""},
			{404, "GET", "/orders/a%20", ""},
			{404, "POST", "/orders/x/ship", ""},
			{404, "POST", "/orders/x/payments", ""},
			{404, "GET", "/", ""},
			{405, "DELETE", "/orders/a", ""},
			{404, "GET", "/stock/none", ""},
			{400, "PUT", "/stock/ink", `{"available":-1}`},
			{400, "PUT", "/stock/ink", `{}`},
			{403, "POST", "/payments/callback", `{"payment_id":"p"}`},
		} {
			problem(t, r.want(c.code, c.method, c.path, c.body))
		}
		r.same("the database", r.dump(), before)
		// echo -n '{"payment_id":"p"}' | openssl dgst -sha256 -hmac secret
		problem(t, r.want(404, "POST", "/payments/callback", `{"payment_id":"p"}`, checkout.HeaderSignature,
			"3544849ceb26c676d411e28598c06dc15dd7a270187b0457e8b846f570c17c8c"))
		r.want(200, "GET", "/-/healthy", "")
		r.want(200, "PUT", "/stock/new", `{"available":7}`)
	})
}

// closerFunc implements Closer.
type closerFunc func(context.Context, orderclose.Path, []orderclose.CloseRequest) ([]orderclose.Outcome, error)

func (f closerFunc) CloseOrders(ctx context.Context, p orderclose.Path, r []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
	return f(ctx, p, r)
}

// With AskFirst a read only shows that the order closes. Without a Closer the shop closes no order itself, and one whose payment is pending stays open.
func TestShop_WithAskFirstAReadOnlyShowsClosing(t *testing.T) {
	for _, pending := range []bool{false, true} {
		t.Run(fmt.Sprint("pending: ", pending), func(t *testing.T) {
			asked := 0
			inBubble(t, func(o *checkout.Options) {
				if o.AskFirst = true; pending {
					o.Closer = closerFunc(func(_ context.Context, _ orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
						asked++
						return []orderclose.Outcome{{OrderID: reqs[0].OrderID, Verdict: orderclose.PaymentPending}}, nil
					})
				}
			}, func(r *rig) {
				o := r.create("a")
				time.Sleep(time.Until(o.DueAt.Add(time.Second)))
				o = r.get("a")
				expect.That(t, o.Status == checkout.Closing && o.SecondsLeft == 0 && asked == 0, "%+v, asked %d times", o, asked)
				for _, path := range []string{"/orders/a/payments", "/orders/a/cancel"} {
					p := problem(t, r.want(409, "POST", path, ""))
					expect.That(t, p.Order != nil && p.Order.Status == checkout.Closing, "%s: %+v", path, p)
				}
				expect.Equal(t, asked != 0, pending, "the closer is asked")
				r.same("receipts", len(r.rows("SELECT * FROM receipts")), 0)
			})
		})
	}
}

// canceler cancels each payment. The function gets the orders.
type canceler func(ids []string)

func (canceler) Ask(context.Context, []string) ([]payment.Answer, error) {
	return nil, errors.New("asked instead of cancelling")
}

func (f canceler) Cancel(_ context.Context, ids []string) ([]payment.Answer, error) {
	f(ids)
	return slices.Repeat([]payment.Answer{payment.Cancelled}, len(ids)), nil
}

// The shop opens no payment after the due time, and its own close cancels the payments first.
func TestShop_ACloseOnAPaymentPastDueCancelsThePaymentsFirst(t *testing.T) {
	var checked *payment.CheckedStore
	closer := closerFunc(func(ctx context.Context, path orderclose.Path, reqs []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		return checked.CloseOrders(ctx, path, reqs)
	})
	inBubble(t, func(o *checkout.Options) { o.AskFirst, o.Closer = true, closer }, func(r *rig) {
		var cancelled []string
		checked = must.Get(payment.New(payment.Options{Store: r.clients.Store, Provider: canceler(func(ids []string) {
			cancelled = append(cancelled, ids...)
			r.same("receipts when the payments are cancelled", len(r.rows("SELECT * FROM receipts")), 0)
		})}))(t)
		o := r.create("a")
		r.want(201, "POST", "/orders/a/payments", "")
		time.Sleep(time.Until(o.DueAt.Add(time.Second)))
		p := problem(t, r.want(409, "POST", "/orders/a/payments", ""))
		expect.That(t, p.Order != nil && p.Order.Status == checkout.Closed && slices.Equal(cancelled, []string{"a"}),
			"%+v, and the payments of %v were cancelled", p, cancelled)
		r.same("payments that were started", len(r.rows("SELECT payment_id FROM checkout_payments")), 1)
	})
}

func TestShop_WithoutKafkaCheckoutWorksAndTheSweepCloses(t *testing.T) {
	inBubble(t, func(o *checkout.Options) { o.Producer = awayProducer{o.Producer} }, func(r *rig) {
		o := r.create("a")
		r.create("b")
		r.same("checkout_unscheduled_total", r.metric("checkout_unscheduled_total"), 2.0)
		r.start(pipeline.Compensator)
		time.Sleep(time.Until(o.DueAt) + 65*time.Minute)
		v := r.check()
		expect.That(t, v.ByPath["sweep"] == 2, "closed %v, want two by the sweep", v.ByPath)
		r.same("status", r.get("a").Status, checkout.Closed)
	})
}

// TestShop_WithAnOutboxKafkaMayBeUnreachable: checkouts do not use Kafka, and the pipeline closes their orders when Kafka is back.
func TestShop_WithAnOutboxKafkaMayBeUnreachable(t *testing.T) {
	outbox := func(o *checkout.Options) {
		o.Outbox = must.Get(producer.NewOutbox(producer.OutboxOptions{Dialect: producer.SQLite}))(t)
		o.Producer = awayProducer{o.Producer}
	}
	inBubble(t, outbox, func(r *rig) {
		o := r.create("a")
		r.want(409, "POST", "/orders", strings.Replace(basket("b", 0), `"quantity":2`, `"quantity":1000000`, 1))
		r.same("orders to be scheduled", r.rows("SELECT order_id FROM outbox_schedules"), []string{"a"})
		time.Sleep(time.Minute)
		r.start(pipeline.Relay, pipeline.Closer, pipeline.Outbox)
		time.Sleep(time.Until(o.DueAt) + time.Second)
		r.same("receipts", r.rows("SELECT order_id, path, lateness_ms FROM receipts"), []string{"a pipeline 0"})
		r.same("orders to be scheduled", len(r.rows("SELECT * FROM outbox_schedules")), 0)
		r.same("checkout_unscheduled_total", r.metric("checkout_unscheduled_total"), 0.0)
	})
}

// awayProducer cannot reach Kafka.
type awayProducer struct{ checkout.Producer }

func (awayProducer) Schedule(ctx context.Context, _ orderclose.Order) error {
	<-ctx.Done()
	return ctx.Err()
}

// The due time passes while the start of a payment is recorded. A closer may have looked before the commit, so the customer is not sent to the page.
func TestShop_TheDueTimeIsCheckedAgainAfterAPaymentIsRecorded(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		r.create("a")
		_, err := r.world.DB().Exec("CREATE TRIGGER passes AFTER INSERT ON checkout_payments BEGIN UPDATE orders SET expire_at = created_at; END")
		r.must(err)
		for range 2 { // the second request is a repeat
			p := problem(t, r.want(409, "POST", "/orders/a/payments", "", checkout.HeaderKey, "k"))
			expect.That(t, p.Order != nil && p.Order.Status == checkout.Closed, "%+v", p)
		}
		r.same("recorded payments", len(r.rows("SELECT * FROM checkout_payments")), 1)
		r.same("receipts", r.rows("SELECT order_id, path FROM receipts"), []string{"a touch"})
	})
}
