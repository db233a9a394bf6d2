package payment_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/payment"
)

// The provider hangs or fails on it. The next time it is asked for alone, and delays
// no other order.
func TestAsking_AnOrderWithoutAnAnswerDoesNotKeepOthersPending(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"fails": func(context.Context) error { return errors.New("bad id") },
	} {
		for _, bad := range [][]string{{"o-005"}, {"o-000", "o-099"}, {"o-007", "o-013", "o-014", "o-050", "o-051"}} {
			t.Run(fmt.Sprint(name, len(bad)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					isBad := map[string]bool{}
					for _, id := range bad {
						isBad[id] = true
					}
					s := newShop(t, func(ctx context.Context, id string) (payment.Answer, error) {
						if isBad[id] {
							return "", fail(ctx)
						}
						return payment.Unpaid, nil
					}, payment.Options{})
					var ids []string
					for i := range 120 {
						ids = append(ids, fmt.Sprintf("o-%03d", i))
						s.order(t, ids[i], -time.Minute)
					}
					for range 8 {
						began := time.Now()
						s.close(t, ids...)
						if took := time.Since(began); took > time.Minute {
							t.Errorf("a close took %v", took)
						}
						time.Sleep(time.Minute) // the breaker may be open
					}
					for _, id := range ids {
						if st := s.status(t, id); (st == 0) == isBad[id] {
							continue
						}
						t.Errorf("order %s: status %d, bad: %v", id, s.status(t, id), isBad[id])
					}
					s.asked = nil
					s.close(t, ids...)
					if len(s.asked) > len(bad) {
						t.Errorf("in the last close %d questions were asked for %d orders", len(s.asked), len(bad))
					}
				})
			})
		}
	}
}

// Each failure might be the fault of one order.
func TestAsking_AFailingProviderIsAskedOnlyAFewTimes(t *testing.T) {
	s := newShop(t, func(context.Context, string) (payment.Answer, error) { return "", errors.New("500") }, payment.Options{})
	var ids []string
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("o-%03d", i))
		s.order(t, ids[i], -time.Minute)
	}
	for range 3 {
		s.asked = nil
		for _, v := range s.close(t, ids...) {
			if v != string(orderclose.PaymentPending) {
				t.Fatal(v)
			}
		}
		if len(s.asked) > 8 {
			t.Errorf("the provider was asked %d times", len(s.asked))
		}
	}
}
