package closing_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/closing"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// patientStore is a service behind a circuit breaker. It hangs on some orders.
type patientStore struct {
	endpoint *httpcall.Endpoint
	hangs    map[string]bool
	closed   map[string]bool
}

func (s *patientStore) CloseOrders(ctx context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) (out []orderclose.Outcome, err error) {
	err = s.endpoint.Do(ctx, func(ctx context.Context) error {
		out = nil
		for _, r := range requests {
			if s.hangs[r.OrderID] {
				<-ctx.Done()
				return ctx.Err()
			}
		}
		for _, r := range requests {
			s.closed[r.OrderID] = true
			out = append(out, orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed})
		}
		return nil
	})
	return out, err
}

// For any number of such orders the others are closed after a few batches.
func TestCulprits_HangingOrdersDoNotKeepTheBreakerOpen(t *testing.T) {
	for _, bad := range []int{1, 3, 5, 10, 20} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &patientStore{httpcall.NewEndpoint("close", nil), map[string]bool{}, map[string]bool{}}
				for i := range bad {
					s.hangs[fmt.Sprint(i*7)] = true
				}
				c, rounds := &closing.Culprits{}, 0
				for ; len(s.closed) < 200-bad && rounds < 40; rounds++ {
					var requests []orderclose.CloseRequest
					for i := range 200 {
						if id := fmt.Sprint(i); !s.closed[id] {
							requests = append(requests, orderclose.CloseRequest{OrderID: id})
						}
					}
					_, _ = c.Close(t.Context(), s, orderclose.PathPipeline, requests)
					time.Sleep(6 * time.Second)
				}
				expect.That(t, len(s.closed) >= 200-bad && rounds <= 2+2*bad, "%d of %d are closed after %d batches", len(s.closed), 200-bad, rounds)
			})
		})
	}
}
