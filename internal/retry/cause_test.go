package retry

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestWithCauses_NamesEachCauseOnce(t *testing.T) {
	down, late := errors.New("the store is down"), errors.New("no answer in time")
	inner := fmt.Errorf("call: %w: %w", down, context.DeadlineExceeded)
	err := WithCauses(fmt.Errorf("%w: %w", late, inner), down, late)
	if want := "no answer in time: call: the store is down: context deadline exceeded"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	err = WithCauses(context.DeadlineExceeded, down, late)
	if want := "the store is down: no answer in time: context deadline exceeded"; err.Error() != want || !errors.Is(err, down) || !errors.Is(err, late) {
		t.Errorf("got %q, want %q", err, want)
	}
}
