//go:build race

package bubble

// Under the race detector each step costs many times as much, and the detector
// itself has a limit of events that half an hour of pipeline with all its
// heartbeats comes near: fewer seeds, which are the first of the same.
const (
	seeds         = 12
	faultSeeds    = 10
	databaseSeeds = 10
	clockSeeds    = 3
)
