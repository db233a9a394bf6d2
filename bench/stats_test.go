package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

func TestMedian_DoesNotDependOnTheOrder(t *testing.T) {
	for want, values := range map[float64][]float64{3: {9, 1, 3}, 2.5: {4, 2, 3, 1}, 7: {7}} {
		before := slices.Clone(values)
		if have := median(values); have != want || !slices.Equal(values, before) {
			t.Errorf("median of %v is %v, want %v (and they are now %v)", before, have, want, values)
		}
	}
	if have := median(nil); !math.IsNaN(have) {
		t.Errorf("median of nothing is %v", have)
	}
}

func TestPercentile_IsTheNearestRank(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for q, want := range map[float64]int{0: 1, 0.5: 50, 0.99: 99, 0.999: 100, 1: 100} {
		if have := percentile(hundred, q); have != want {
			t.Errorf("percentile %v of 1..100 is %d, want %d", q, have, want)
		}
	}
	if have := percentile([]int{4}, 0.5); have != 4 {
		t.Errorf("percentile of one value is %d", have)
	}
}

func TestSummarize_CountsEarlyRecords(t *testing.T) {
	l := summarize(1000, 2, []received{{number: 2, late: 3 * time.Millisecond}, {number: 1, late: -time.Microsecond}, {number: 0, late: time.Second}, {number: 3, late: time.Millisecond}}, process.Used{})
	if l.early != 1 || l.p50 != time.Millisecond || l.worst != 3*time.Millisecond {
		t.Errorf("early %d, p50 %v, worst %v", l.early, l.p50, l.worst)
	}
}
