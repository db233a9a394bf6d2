package httpclose_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/closer/httpclose"
)

// The service of the shop, and the Store with which a closer calls it.
func Example() {
	secrets := []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} // echo whsec_$(openssl rand -base64 32)
	due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	handler, err := httpclose.Handler(secrets, func(_ context.Context, _ orderclose.Path, requests []orderclose.CloseRequest) ([]orderclose.Outcome, error) {
		outcomes := make([]orderclose.Outcome, len(requests)) // one for each request, in the same order
		for i, r := range requests {
			outcomes[i] = orderclose.Outcome{OrderID: r.OrderID, Verdict: orderclose.Closed, Due: due, At: due.Add(time.Second)}
		}
		return outcomes, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	service := httptest.NewServer(handler)
	defer service.Close()

	store, err := httpclose.New(httpclose.Options{URL: service.URL, Secrets: secrets})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	out, err := store.CloseOrders(context.Background(), orderclose.PathPipeline, []orderclose.CloseRequest{{OrderID: "order-17", Due: due}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out[0].OrderID, out[0].Verdict, out[0].Remaining())
	// Output: order-17 closed -1s
}
