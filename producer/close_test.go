package producer_test

import (
	"testing"

	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/producer"
)

// Many programs defer Close before they check the error of New.
func TestClose_OfANilValueDoesNothing(t *testing.T) {
	p, err := producer.New(producer.Options{})
	expect.That(t, err != nil, "got a producer")
	p.Close()
	s, err := httpclose.New(httpclose.Options{})
	expect.That(t, err != nil && s.Close() == nil, "got a store")
	h, err := payment.NewHTTP(payment.HTTPOptions{})
	expect.That(t, err != nil && h.Close() == nil, "got a provider")
}
