package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestEvenly_CountsTheWaitForAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, err := evenly(t.Context(), 10, 4, 1, func(_, number int, planned time.Time) (time.Time, error) {
			time.Sleep(200 * time.Millisecond)
			return planned, nil
		})
		if err != nil || len(took) != 4 || took[0] != 200*time.Millisecond || took[3] != 500*time.Millisecond {
			t.Error(took, err)
		}
	})
}

func TestEvenly_EndsWithTheFirstError(t *testing.T) {
	failed := errors.New("failed")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		took, err := evenly(t.Context(), 1, 1000, 2, func(_, number int, planned time.Time) (time.Time, error) {
			if number == 5 {
				return planned, failed
			}
			return planned, nil
		})
		if !errors.Is(err, failed) || len(took) != 5 || time.Since(begin) > 10*time.Second {
			t.Error(len(took), err, time.Since(begin))
		}
	})
}
