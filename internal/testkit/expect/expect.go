// Package expect compares what a test got with what it wants. A difference fails the test, which goes on.
//
//	expect.Equal(t, len(store.ids()), 100, "orders closed")   orders closed: got 99, want 100
//	expect.Same(t, log.Keys("dead"), []string{"a"}, "dead letters")
//	expect.That(t, took < time.Second, "it took %v", took)
package expect

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
)

// A TB is a *testing.T, a *testing.B, or a *rapid.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Equal fails the test if got is not want. The format names what is compared.
func Equal[T comparable](t TB, got, want T, format string, args ...any) {
	t.Helper()
	if got == want {
		return
	}
	verb := "%v"
	if _, is := any(got).(string); is {
		verb = "%q"
	}
	t.Errorf("%s: got "+verb+", want "+verb, fmt.Sprintf(format, args...), got, want)
}

// Same fails the test if got and want differ for the package go-cmp. The format names what is compared.
func Same[T any](t TB, got, want T, format string, args ...any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", fmt.Sprintf(format, args...), diff)
	}
}

// That fails the test if holds is false. The format says what is wrong.
func That(t TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}

// NoError fails the test if err is not nil.
func NoError(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%v", err)
	}
}

// Between fails the test if got is less than least or more than most. The format names what is compared.
func Between[T cmp.Ordered](t TB, got, least, most T, format string, args ...any) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: got %v, want %v to %v", fmt.Sprintf(format, args...), got, least, most)
	}
}

// AtMost fails the test if got is more than most. The format names what is compared.
func AtMost[T cmp.Ordered](t TB, got, most T, format string, args ...any) {
	t.Helper()
	if got > most {
		t.Errorf("%s: got %v, want %v at most", fmt.Sprintf(format, args...), got, most)
	}
}

// Err returns the error of a call that has another result too.
func Err[T any](_ T, err error) error { return err }

// Is fails the test if err is not target, as errors.Is has it. The format names the call.
func Is(t TB, err, target error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want %v", fmt.Sprintf(format, args...), err, target)
	}
}

// Says fails the test if err is nil or its text does not contain part. The format names the call.
func Says(t TB, err error, part, format string, args ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: got %v, want %s", fmt.Sprintf(format, args...), err, part)
	}
}
