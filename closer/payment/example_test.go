package payment_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/orderclose/orderclose/closer/payment"
)

// The service of the shop that asks the provider, and the Provider with which a closer asks it.
func Example() {
	secrets := []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} // echo whsec_$(openssl rand -base64 32)
	paid := map[string]payment.Answer{"order-17": payment.Paid, "order-18": payment.Unpaid}
	handler, err := payment.Handler(secrets, payment.ProviderFunc(func(_ context.Context, ids []string) ([]payment.Answer, error) {
		answers := make([]payment.Answer, len(ids))
		for i, id := range ids {
			answers[i] = paid[id] // "" counts as unknown
		}
		return answers, nil
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	service := httptest.NewServer(handler)
	defer service.Close()

	provider, err := payment.NewHTTP(payment.HTTPOptions{URL: service.URL, Secrets: secrets})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer provider.Close()
	fmt.Println(provider.Ask(context.Background(), []string{"order-17", "order-18"}))
	// Output: [paid unpaid] <nil>
}
