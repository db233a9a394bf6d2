package producer_test

import (
	"testing"

	"github.com/orderclose/orderclose/closer/httpclose"
	"github.com/orderclose/orderclose/closer/payment"
	"github.com/orderclose/orderclose/producer"
)

// Many programs defer Close before they check the error of New.
func TestClose_OfANilValueDoesNothing(t *testing.T) {
	p, err := producer.New(producer.Options{})
	if err == nil {
		t.Error("got a producer")
	}
	p.Close()
	s, err := httpclose.New(httpclose.Options{})
	if err == nil || s.Close() != nil {
		t.Error("got a store")
	}
	h, err := payment.NewHTTP(payment.HTTPOptions{})
	if err == nil || h.Close() != nil {
		t.Error("got a provider")
	}
}
