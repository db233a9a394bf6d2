package console

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSource_FetchesOnceForAllAndKeepsWhatWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := 0
		var answer error
		takes := time.Millisecond
		s := source[int]{every: 5 * time.Second, limit: time.Minute, fetch: func(ctx context.Context) (int, error) {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			fetched++
			return fetched, answer
		}}
		get := func() known[int] { return s.get(t.Context(), t.Context()) }
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
		s.forget()
		get()
		time.Sleep(time.Second)
		if k := get(); k.Away() || k.Value < 3 {
			t.Errorf("%+v", k)
		}
	})
}

func TestSource_WaitsLongerForTheFirstValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := source[int]{every: time.Second, limit: time.Minute, fetch: func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		ends, stop := context.WithCancel(t.Context())
		began := time.Now()
		if k := s.get(t.Context(), ends); k.Known() || time.Since(began) != waitFirst {
			t.Errorf("%+v after %v", k, time.Since(began))
		}
		stop()
		synctest.Wait()
		if k := s.get(t.Context(), ends); !k.Away() {
			t.Errorf("%+v", k)
		}
	})
}
