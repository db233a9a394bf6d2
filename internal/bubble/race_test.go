//go:build race

package bubble

import "testing"

// Under the race detector each step costs many times as much, and the detector
// itself has a limit of events that half an hour of pipeline with all its
// heartbeats comes near: fewer seeds, which are the first of the same.
const (
	seeds         = 4
	faultSeeds    = 3
	databaseSeeds = 4
	clockSeeds    = 1
)

// long is a test of many hours, whose code others run under the detector.
func long(t *testing.T) {
	t.Helper()
	t.Skip("too long under the race detector: it runs without it")
}
