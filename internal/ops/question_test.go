package ops

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// waitFirst is how long the tests wait for the first answer.
const waitFirst = 3 * time.Second

func TestQuestion_IsAskedOnceForAllAndKeepsWhatWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := 0
		var answer error
		takes := time.Millisecond
		s := NewQuestion(t.Context(), 5*time.Second, time.Minute, waitFirst, func(ctx context.Context) (int, error) {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			fetched++
			return fetched, answer
		})
		get := func() Answer[int] { return s.Get(t.Context()) }
		for range 3 {
			if k := get(); k.Value != 1 || !k.Known() || k.Away() {
				t.Errorf("%+v", k)
			}
		}
		time.Sleep(5 * time.Second)
		takes = time.Second
		began := time.Now()
		if k := get(); k.Value != 1 || time.Since(began) != waitKnown {
			t.Errorf("%+v after %v: want the old value soon", k, time.Since(began))
		}
		time.Sleep(time.Second)
		if k := get(); k.Value != 2 {
			t.Errorf("%+v, want the value that came later", k)
		}
		answer = errors.New("away")
		time.Sleep(5 * time.Second)
		get()
		time.Sleep(time.Second)
		k := get()
		since := k.Since
		if k.Value != 2 || k.Err == nil || since.IsZero() {
			t.Errorf("%+v, want the old value with the error", k)
		}
		time.Sleep(10 * time.Second)
		get()
		time.Sleep(time.Second)
		if k := get(); !k.Since.Equal(since) {
			t.Errorf("since %v, want the first failure, %v", k.Since, since)
		}
		answer = nil
		time.Sleep(time.Minute)
		if k := s.Get(t.Context()); k.Away() {
			t.Errorf("%+v, want a new answer after a minute in which nobody asked", k)
		}
		answer = errors.New("away")
		s.Forget()
		s.Get(t.Context())
		answer = nil
		s.Forget()
		get()
		time.Sleep(time.Second)
		if k := get(); k.Away() || k.Value < 3 {
			t.Errorf("%+v", k)
		}
	})
}

func TestQuestion_WaitsLongerForTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends, stop := context.WithCancel(t.Context())
		s := NewQuestion(ends, time.Second, time.Minute, waitFirst, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		began := time.Now()
		if k := s.Get(t.Context()); k.Known() || !errors.Is(k.Err, errNotYet) || time.Since(began) != waitFirst {
			t.Errorf("%+v after %v", k, time.Since(began))
		}
		stop()
		synctest.Wait()
		if k := s.Get(t.Context()); !errors.Is(k.Err, context.Canceled) {
			t.Errorf("%+v", k)
		}
	})
}
