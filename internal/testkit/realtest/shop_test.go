package realtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose/examples/checkout"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/process"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
	"github.com/orderclose/orderclose/pipeline"
)

// shopProcess is examples/checkout as a process.
type shopProcess struct {
	*rig
	path, listen string
	process      *process.Process
}

// openCheckout builds the shop and starts it.
func (r *rig) openCheckout() *shopProcess {
	r.t.Helper()
	path := must.Get(checkoutBinary())(r.t)
	s := &shopProcess{rig: r, path: path}
	s.listen = freeAddress(r.t)
	s.process = &process.Process{Name: "checkout", Command: func() *exec.Cmd {
		cmd := exec.Command(s.path, "--listen", s.listen, "--config", s.file)
		cmd.Env, cmd.Stderr = s.environ(nil), s.logs
		return cmd
	}}
	must.Do(r.t, s.process.Start())
	r.t.Cleanup(s.dropViews)
	r.t.Cleanup(s.process.Kill)
	return s
}

// dropViews deletes the shop's data in Redis.
func (s *shopProcess) dropViews() {
	ctx, client := context.Background(), s.redisClient()
	for keys := client.Scan(ctx, 0, s.prefix+"*", 1000).Iterator(); keys.Next(ctx); {
		client.Del(ctx, keys.Val())
	}
}

// ask repeats a request until there is an answer, as a client does whose shop may be killed at any moment. It returns the status code.
func (s *shopProcess) ask(method, path, body, key string, into any) int {
	code := 0
	s.eventually(func() error {
		var answer []byte
		var err error
		if code, answer, err = s.askOnce(method, path, body, key); err != nil || code >= 500 {
			return fmt.Errorf("%s %s: %d %s, %w", method, path, code, answer, err)
		}
		expect.That(s.t, json.Unmarshal(answer, into) == nil || code >= 300, "%s %s: %d %s", method, path, code, answer)
		return nil
	})
	return code
}

func (s *shopProcess) askOnce(method, path, body, key string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.listen+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set(checkout.HeaderKey, key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// Payments race with closes, and the shop is killed in between. Clients repeat unanswered requests with the same idempotency key.
func TestReal_TheShop(t *testing.T) { eachDatabase(t, theShop) }

func theShop(t *testing.T, servers environ.Servers) {
	r := newRig(t, servers)
	r.disturbed = true // reads after the due time close orders before the pipeline
	s := r.openCheckout()
	orders := inRing(100, 200)
	for _, role := range pipeline.AllRoles() {
		r.start(string(role))
	}
	random := rand.New(rand.NewPCG(5, 5))
	var mu sync.Mutex
	var paid, closed []string
	var wg sync.WaitGroup
	for i := range orders {
		pause, wait := time.Duration(random.Int64N(int64(5*time.Second))), time.Duration(random.Int64N(int64(2*time.Second)))
		wg.Go(func() {
			scenario.Pause(t.Context(), pause)
			id := fmt.Sprintf("h%03d", i)
			var o checkout.Order
			s.ask("POST", "/orders", fmt.Sprintf(`{"id":%q,"customer":%q,"category":"flash-sale","points":7,"items":[{"sku":%q,"quantity":2},{"sku":%q,"quantity":1}]}`,
				id, id, scenario.SKU(i%skus), scenario.SKU(0)), "create "+id, &o)
			expect.That(t, o.ID == id && o.SecondsLeft <= 2, "made: %+v", o)
			var p checkout.StartedPayment
			started := s.ask("POST", "/orders/"+id+"/payments", "", "payment "+id, &p) < 300
			scenario.At(t.Context(), o.DueAt.Add(wait-time.Second))
			switch {
			case started && i%4 != 0:
				var result checkout.PaymentResult
				for range 2 {
					s.ask("POST", "/payments/callback", fmt.Sprintf(`{"payment_id":%q}`, p.PaymentID), "", &result)
				}
				if result.Outcome == "paid" {
					if i%2 == 0 {
						s.ask("POST", "/orders/"+id+"/ship", "", "ship "+id, &o)
					}
					mu.Lock()
					paid = append(paid, id)
					mu.Unlock()
					return
				}
			case i%20 != 0: // the others are left to the pipeline
				scenario.At(t.Context(), o.DueAt)
				s.ask("GET", "/orders/"+id, "", "", &o)
				expect.That(t, o.Status != checkout.Unpaid, "%s is shown unpaid past due: %+v", id, o)
			}
			mu.Lock()
			closed = append(closed, id)
			mu.Unlock()
		})
	}
	for kill := range 2 {
		r.eventually(func() error { return atLeast("orders", r.count("SELECT COUNT(*) FROM orders"), orders*(kill+1)/3) })
		s.process.Kill()
		must.Do(t, s.process.Start())
	}
	wg.Wait()
	r.settle()
	v := r.check()
	expect.That(t, v.Paid == len(paid) && v.Closed() == len(closed) && v.ByPath["pipeline"]+v.ByPath["sweep"] != 0,
		"%d paid and %d were told; %d closed %v and %d were told", v.Paid, len(paid), v.Closed(), v.ByPath, len(closed))
	slices.Sort(paid)
	for _, id := range r.texts("SELECT id FROM orders WHERE status IN (1, 4)") {
		_, told := slices.BinarySearch(paid, id)
		expect.That(t, told, "%s is paid and nobody was told", id)
	}
	if n := len(r.texts("SELECT p.order_id FROM checkout_payments p JOIN orders o ON o.id = p.order_id AND o.status = 2" +
		" JOIN late_payments r ON r.order_id = p.order_id AND r.payment_id = p.payment_id")); n != len(r.texts("SELECT order_id FROM late_payments")) {
		t.Errorf("%d late payments belong to a closed order and its payment, there are %v", n, r.texts("SELECT order_id FROM late_payments"))
	}
	s.awaitTold(len(closed))
	few := r.texts("SELECT customer FROM checkout_customers c JOIN orders o ON o.id = c.customer WHERE points <> CASE WHEN o.status = 2 THEN 100 ELSE 93 END")
	expect.That(t, len(few) <= 0, "points are off of %v", few)
	t.Logf("%d paid, closed %v, %d late payments", v.Paid, v.ByPath, len(r.texts("SELECT order_id FROM late_payments")))
	expect.NoError(t, s.process.End(syscall.SIGTERM, waitLimit))
}

// awaitTold waits until each reader of events has handled n closed orders. Then it checks that n customers were notified, each once.
func (s *shopProcess) awaitTold(n int) {
	s.t.Helper()
	s.dispatch()
	for _, reader := range []string{checkout.ReaderSMS, checkout.ReaderPoints, checkout.ReaderLogistics} {
		s.eventually(func() error {
			return atLeast("orders handled by reader "+reader, len(s.texts("SELECT DISTINCT order_id FROM checkout_notices WHERE reader = ?", reader)), n)
		})
	}
	told := len(s.texts("SELECT order_id FROM checkout_notifications"))
	distinct := len(s.texts("SELECT DISTINCT order_id FROM checkout_notifications"))
	expect.That(s.t, told == n && distinct == n, "%d were told, of %d orders; want %d", told, distinct, n)
}

// dispatch publishes the outbox to the topic while no dispatcher runs.
func (r *rig) dispatch() {
	r.t.Helper()
	for _, row := range r.texts("SELECT CONCAT(order_id, ' ', payload) FROM outbox_events") {
		id, payload, _ := strings.Cut(row, " ")
		for range 2 {
			r.eventually(func() error {
				_, err := r.kafka.Append(context.Background(), r.cfg.Topics.Events, kafka.PartitionOf([]byte(id), r.cfg.Partitions),
					[]wire.Message{{Key: []byte(id), Value: store.ExpandEvent(id, []byte(payload))}})
				return err
			})
		}
	}
}

func (r *rig) texts(query string, args ...any) []string {
	r.t.Helper()
	rows := must.Get(r.store.DB().QueryContext(r.t.Context(), query, args...))(r.t)
	defer rows.Close()
	var texts []string
	for rows.Next() {
		var text string
		must.Do(r.t, rows.Scan(&text))
		texts = append(texts, text)
	}
	must.Do(r.t, rows.Err())
	return texts
}
