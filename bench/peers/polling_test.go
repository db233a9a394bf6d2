package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRegularly_PollsAtTheTimesOfATicker(t *testing.T) {
	for name, c := range map[string]struct {
		cron bool
		want []float64 // seconds; the second poll takes 2.5 s
	}{
		"interval": {false, []float64{1.3, 2.3, 4.8, 5.3}},
		"cron job": {true, []float64{1, 2, 5, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now() // a whole second
				time.Sleep(300 * time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				var polls []float64
				err := regularly(ctx, time.Second, c.cron, func() error {
					if polls = append(polls, time.Since(begin).Seconds()); len(polls) == 2 {
						time.Sleep(2500 * time.Millisecond)
					}
					if len(polls) == 4 {
						cancel()
					}
					return ctx.Err()
				})
				if !slices.Equal(polls, c.want) || err != nil {
					t.Error(polls, err)
				}
			})
		})
	}
}
