package main

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/process"
)

func TestSummarize_CountsEarlyRecords(t *testing.T) {
	l := summarize(1000, 2, []received{{number: 2, late: 3 * time.Millisecond}, {number: 1, late: -time.Microsecond}, {number: 0, late: time.Second}, {number: 3, late: time.Millisecond}}, process.Used{})
	if l.Early != 1 || l.P50 != measure.Millis(time.Millisecond) || l.Max != measure.Millis(3*time.Millisecond) {
		t.Errorf("%+v", l)
	}
}
