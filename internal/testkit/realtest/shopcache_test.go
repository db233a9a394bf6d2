package realtest

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/sqlclose"
	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// giveCouponsBack maps the reference schema as the example's topics.yaml does, with on_close. Run it before the processes start.
func (r *rig) giveCouponsBack() {
	r.t.Helper()
	_, orders, found := strings.Cut(readFile(r.t, "../../../examples/checkout/topics.yaml"), "\norders:\n")
	must.That(r.t, found, "the example's topics.yaml has no section orders")
	if strings.HasPrefix(r.servers.DSN, "postgres") {
		orders = strings.ReplaceAll(orders, "type: datetime, zone: UTC", "type: timestamptz")
	}
	r.configure("orders:\n" + orders)
}

// sum returns a counter of the shop, summed over the series that contain each of the labels.
func (s *shopProcess) sum(name string, labels ...string) (sum float64) {
	s.t.Helper()
	res := must.Get(http.Get("http://" + s.listen + "/metrics"))(s.t)
	defer res.Body.Close()
series:
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(line, `"`+label+`"`) {
				continue series
			}
		}
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		must.That(s.t, err == nil, "%s: %v", line, err)
		sum += n
	}
	return sum
}

// is returns an error unless one value is another.
func is[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

// create creates an order with one line.
func (s *shopProcess) create(id, category, coupon string) {
	s.t.Helper()
	var o checkout.Order
	if code := s.ask("POST", "/orders", fmt.Sprintf(`{"id":%q,"customer":"ann","category":%q,"coupon":%q,"items":[{"sku":%q,"quantity":1}]}`,
		id, category, coupon, scenario.SKU(0)), "create "+id, &o); code != 201 {
		s.t.Fatalf("create %s: %d", id, code)
	}
}

// twoShops: two processes of the shop share what is in Redis, and the readers of events.
func twoShops(r *rig, one, two *shopProcess) {
	t := r.t
	for _, s := range []*shopProcess{one, two} {
		s.ask("GET", "/stock/"+scenario.SKU(0), "", "", &struct{}{})
	}
	unknownIDs(two)
	redis := r.redisClient()
	// A new id is visible to the other process before the checkout answers.
	for i := range 100 {
		id := fmt.Sprintf("new-%d", i)
		one.create(id, "physical", "")
		if err := redis.Del(t.Context(), r.prefix+checkout.DefaultViewPrefix+id).Err(); err != nil { // the view would answer
			t.Fatal(err)
		}
		var o checkout.Order
		expect.Equal(t, two.ask("GET", "/orders/"+id, "", "", &o), 200, "%s: the other process answers", id)
	}
	changesAreSeen(one, two)
	closedOnce(one, two)
}

// unknownIDs reads ids that no order has, until the filter is complete: then few of them cost a read of the database.
func unknownIDs(s *shopProcess) {
	const ids = 100
	s.eventually(func() error {
		before := s.sum("checkout_reads_total", checkout.FromFilter)
		for i := range ids {
			expect.Equal(s.t, s.ask("GET", fmt.Sprintf("/orders/unknown-%d", i), "", "", &struct{}{}), 404, "unknown-%d", i)
		}
		return atLeast("reads that the filter answers", int(s.sum("checkout_reads_total", checkout.FromFilter)-before), ids*9/10)
	})
}

// changesAreSeen pays orders by one process while the other reads them. No reader sees an order
// unpaid that it has seen paid: no stale fill replaces a newer version.
func changesAreSeen(one, two *shopProcess) {
	var all sync.WaitGroup
	for i := range 40 {
		id := fmt.Sprintf("raced-%d", i)
		one.create(id, "physical", "")
		for range 3 {
			all.Go(func() {
				paid := 0
				two.eventually(func() error {
					var o checkout.Order
					two.ask("GET", "/orders/"+id, "", "", &o)
					if o.Status == checkout.Paid {
						paid++
					} else if paid > 0 {
						one.t.Errorf("%s is %s again", id, o.Status)
					}
					return atLeast("reads of "+id+" that show it paid", paid, 5)
				})
			})
		}
		all.Go(func() {
			var p checkout.StartedPayment
			one.ask("POST", "/orders/"+id+"/payments", "", "payment "+id, &p)
			one.ask("POST", "/payments/callback", fmt.Sprintf(`{"payment_id":%q}`, p.PaymentID), "", &struct{}{})
		})
	}
	all.Wait()
}

// closedOnce closes orders with coupons again and again, and sends their events again.
func closedOnce(one, two *shopProcess) {
	const orders = 10
	t := one.t
	var requests []orderclose.CloseRequest
	for i := range orders {
		id, coupon := fmt.Sprintf("closed-%d", i), fmt.Sprintf("c%d", i)
		one.ask("PUT", "/coupons/"+coupon, `{"customer":"ann"}`, "", &struct{}{})
		one.create(id, "flash-sale", coupon)
		requests = append(requests, orderclose.CloseRequest{OrderID: id})
	}
	const closed = "SELECT id FROM orders WHERE id LIKE 'closed-%' AND status = 2"
	one.eventually(func() error { return is("closed orders", len(one.texts(closed)), orders) })
	back := func(when string) error {
		return is("coupons that are back once "+when, len(one.texts("SELECT coupon FROM checkout_coupons WHERE order_id IS NULL AND returned = 1")), orders)
	}
	if err := back("after the close"); err != nil { // in its transaction
		t.Error(err)
	}
	mapped := must.Get(sqlclose.New(sqlclose.Options{DSN: one.servers.DSN, TopicsFile: one.file}))(t)
	defer mapped.Close()
	for range 3 {
		must.Get(mapped.CloseOrders(t.Context(), orderclose.PathTouch, requests))(t)
	}
	expect.NoError(t, back("after repeated closes"))
	readers := []string{checkout.ReaderSMS, checkout.ReaderPoints, checkout.ReaderLogistics}
	one.eventually(func() error {
		return is("notices", len(one.texts("SELECT event FROM checkout_notices WHERE order_id LIKE 'closed-%'")), len(readers)*orders)
	})
	for _, q := range requests {
		value := must.Get(orderclose.OrderClosed{OrderID: q.OrderID, ClosedAt: time.Now(), Path: orderclose.PathPipeline, Version: 2}.Encode())(t)
		one.append(one.cfg.Topics.Events, kafka.PartitionOf([]byte(q.OrderID), one.cfg.Partitions), wire.Message{Key: []byte(q.OrderID), Value: value})
	}
	for _, reader := range readers {
		one.eventually(func() error {
			repeated := one.sum("checkout_events_total", reader, "repeated") + two.sum("checkout_events_total", reader, "repeated")
			return is("repeated events of "+reader, repeated >= orders, true)
		})
	}
	if err := is("notices after repeated events", len(one.texts("SELECT event FROM checkout_notices WHERE order_id LIKE 'closed-%'")),
		len(readers)*orders); err != nil {
		t.Error(err)
	}
	expect.NoError(t, is("SMS", len(one.texts("SELECT DISTINCT order_id FROM checkout_notifications WHERE order_id LIKE 'closed-%'")), orders))
}
