//go:build !race

package bubble

import "testing"

// How many random scenarios an ordinary run plays.
const (
	seeds         = 50
	faultSeeds    = 30
	databaseSeeds = 200
	clockSeeds    = 10
)

// long is a test of many hours, which is left out under the race detector.
func long(*testing.T) {}
