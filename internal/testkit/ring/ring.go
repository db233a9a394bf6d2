// Package ring says how many of the tests run. There are three rings:
//
//	make unit      go test -short ./...: no server, and few seeds
//	make test      each promise, each database and each real server at least once
//	make test-all  RING=all: every scenario on every database, every variant, every seed
//
// A plain go test plays the ring of make test. Tests that need a server are skipped if the environment names none.
package ring

import (
	"os"
	"strconv"
	"testing"
)

// All reports whether everything runs, as in make test-all.
func All() bool { return os.Getenv("RING") == "all" }

// OnlyAll skips a test that runs in make test-all only. In says which test of make test proves the same promise, or that none does.
func OnlyAll(t testing.TB, in string) {
	t.Helper()
	if !All() {
		t.Skipf("runs in make test-all; in make test: %s", in)
	}
}

// Seeds returns the first seed to play, and the one after the last: usual seeds from 0 on, or what SEED and SEEDS say.
func Seeds(usual uint64) (first, after uint64) {
	first, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	many, manyErr := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64)
	switch {
	case manyErr == nil:
		usual = many
	case err == nil:
		usual = 1
	}
	return first, first + usual
}

// NotShort skips a test that make unit leaves out, because it takes many seconds of a processor.
func NotShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in make test")
	}
}
