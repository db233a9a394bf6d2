package checker_test

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestQuantile(t *testing.T) {
	expect.Equal(t, checker.Quantile(nil, 0.5), 0, "of nothing")
	all := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		expect.Equal(t, checker.Quantile(all, q), want, "quantile %v", q)
	}
}
