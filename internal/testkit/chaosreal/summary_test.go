//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/checker"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestSummary_ABrokenPromiseIsAnError(t *testing.T) {
	v := &checker.Verdict{Orders: 600, Early: 1, Violations: []string{"1 orders were closed before they were due"}}
	sum := summarize(settings{database: mariadb}, []*round{{began: time.Now(), over: time.Minute, verdict: v}}, nil)
	expect.That(t, sum.err() != nil && sum.Early == 1, "%+v", sum)
}
