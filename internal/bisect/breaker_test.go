package bisect_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/bisect"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/testkit"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// A service behind a circuit breaker hangs on some orders. For any number of them the others are closed after a few batches.
func TestSearch_HangingOrdersDoNotKeepTheBreakerOpen(t *testing.T) {
	for _, bad := range []int{1, 3, 5, 10, 20} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := httpcall.NewEndpoint("close", nil)
				s := &testkit.Store{On: func(ctx context.Context, requests []orderclose.CloseRequest) error {
					return service.Do(ctx, func(ctx context.Context) error {
						if testkit.Asks(requests, "hangs") {
							<-ctx.Done()
						}
						return ctx.Err()
					})
				}}
				c, rounds := &bisect.Search{}, 0
				for ; len(s.Closed()) < 200-bad && rounds < 40; rounds++ {
					var requests []orderclose.CloseRequest
					for i := range 200 {
						id := fmt.Sprint(i)
						if i%7 == 0 && i/7 < bad {
							id = fmt.Sprint("hangs-", i)
						}
						if s.ClosedAt(id).IsZero() {
							requests = append(requests, orderclose.CloseRequest{OrderID: id})
						}
					}
					_, _ = c.Close(t.Context(), s, orderclose.PathPipeline, requests)
					time.Sleep(6 * time.Second)
				}
				closed := len(s.Closed())
				expect.That(t, closed >= 200-bad && rounds <= 2+2*bad, "%d of %d are closed after %d batches", closed, 200-bad, rounds)
			})
		})
	}
}
