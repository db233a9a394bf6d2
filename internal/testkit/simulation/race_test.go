//go:build race

package simulation

// Under the race detector each step takes many times as long, and half an hour of simulated time
// with all its heartbeats comes near to the detector's limit of events. So fewer seeds are played,
// the first of the usual ones.
const (
	seeds         = 4
	faultSeeds    = 3
	databaseSeeds = 4
	clockSeeds    = 1
	chaosSeeds    = 2
)

// ordinary selects the tests of an ordinary run with the race detector: together they use every
// part, and none takes hours. All other tests run without the detector, or if -run names them.
const ordinary = "RandomScenarios|SomeWorlds|WhateverTheBroker|WhateverTheDatabase|TakeOver|UnreadableRecords|AReplayTravels|" +
	"WithThePipelineOff|ADispatcherKilled|TwoSweeps|PostReload|AShutdown"
