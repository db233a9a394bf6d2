package ops

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
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
			k := get()
			expect.That(t, k.Value == 1 && k.Known() && !k.Away(), "%+v", k)
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
		expect.That(t, k.Value == 2 && k.Err != nil && !since.IsZero(), "%+v, want the old value with the error", k)
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

// Nothing is overdue: the next count may come later. While something is, or the server does not answer, it comes soon.
func TestQuestion_AnAnswerThatIsWellLastsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, overdue, failure := 0, OverdueOrders{}, error(nil)
		q := NewQuestions(t.Context(), waitFirst, nil).byName[string(AskOverdue)]
		q.ask = func(context.Context) (any, error) { asked++; return overdue, failure }
		for _, step := range []struct {
			after   time.Duration
			overdue OverdueOrders
			failure error
			asked   int
		}{
			{0, OverdueOrders{}, nil, 1},
			{14 * time.Second, OverdueOrders{Orders: 1}, nil, 1},
			{time.Second, OverdueOrders{Orders: 1}, nil, 2},
			{5 * time.Second, OverdueOrders{Paused: 1}, nil, 3},
			{5 * time.Second, OverdueOrders{}, nil, 4},
			{14 * time.Second, OverdueOrders{}, nil, 4},
			{time.Second, OverdueOrders{}, errors.New("away"), 5},
			{5 * time.Second, OverdueOrders{}, nil, 6},
		} {
			time.Sleep(step.after)
			overdue, failure = step.overdue, step.failure
			q.Get(t.Context())
			expect.That(t, asked == step.asked, "%+v: asked %d times", step, asked)
		}
	})
}
