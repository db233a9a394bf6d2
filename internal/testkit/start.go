package testkit

import (
	"context"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// Start runs a part in the background. stop ends it and fails the test if run returned an error.
func Start(t *testing.T, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx) }()
	return func() {
		cancel()
		expect.NoError(t, <-done)
	}
}
