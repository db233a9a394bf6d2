package producer_test

import (
	"testing"

	"orderclose/httpclose"
	"orderclose/payment"
	"orderclose/producer"
)

// TestClose_OfWhatCouldNotBeMadeDoesNothing: many a main defers it before it looks at the
// error.
func TestClose_OfWhatCouldNotBeMadeDoesNothing(t *testing.T) {
	p, err := producer.New(producer.Options{})
	if err == nil {
		t.Error("a producer of nothing")
	}
	p.Close()
	s, err := httpclose.New(httpclose.Options{})
	if err == nil || s.Close() != nil {
		t.Error("a store of nothing")
	}
	h, err := payment.NewHTTP(payment.HTTPOptions{})
	if err == nil || h.Close() != nil {
		t.Error("a provider of nothing")
	}
}
