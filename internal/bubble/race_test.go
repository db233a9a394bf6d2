//go:build race

package bubble

// Under the race detector each step costs many times as much, and the detector
// itself has a limit of events that half an hour of pipeline with all its
// heartbeats comes near: fewer seeds, which are the first of the same.
const (
	seeds         = 4
	faultSeeds    = 3
	databaseSeeds = 4
	clockSeeds    = 1
	chaosSeeds    = 2
)

// ordinary is what an ordinary run plays: these have every part at work, and none
// takes hours. All the others run without the detector, or if -run names them.
const ordinary = "RandomScenarios|SomeWorlds|WhateverTheBroker|WhateverTheDatabase|TakeOver|Poison|AReplayTravels|" +
	"WithThePipelineOff|ADispatcherKilled|TwoSweeps|PostReload|AShutdown"
