package retry

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// WithCauses returns an error that wraps err and the causes. Its text names each cause once: a cause
// that err wraps already is not added.
func WithCauses(err error, causes ...error) error {
	for i := len(causes) - 1; i >= 0; i-- {
		if !errors.Is(err, causes[i]) {
			err = fmt.Errorf("%w: %w", causes[i], err)
		}
	}
	return err
}

// PanicError is a panic in code of the user, such as a store of its own, as an error.
type PanicError struct {
	Value any    // what the code panicked with
	Stack string // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Catch calls code of the user and returns its error. If the code panics, Catch returns a
// *PanicError. Errors that the runtime cannot recover from, such as concurrent writes of a map,
// still end the process.
func Catch(call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	return call()
}

// Stack returns the attribute of a log line about err: the stack, if err is a panic. Otherwise the
// attribute is empty, and a logger leaves it out.
func Stack(err error) slog.Attr {
	if p, panicked := errors.AsType[*PanicError](err); panicked {
		return slog.String("stack", p.Stack)
	}
	return slog.Attr{}
}
