package retry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/retry"
)

func TestCatch_TurnsAPanicIntoAnError(t *testing.T) {
	wanted := errors.New("refused")
	if err := retry.Catch(func() error { return wanted }); err != wanted {
		t.Errorf("err = %v, want that of the call", err)
	}
	err := retry.Catch(func() error { panic("index out of range") })
	var p *retry.PanicError
	if !errors.As(err, &p) || err.Error() != "panic: index out of range" || !strings.Contains(p.Stack, "panic_test.go") {
		t.Errorf("err = %v, want a PanicError with the stack", err)
	}
}
