//go:build !race

package simulation

// The numbers of random scenarios of an ordinary run.
const (
	seeds         = 50
	faultSeeds    = 30
	databaseSeeds = 200
	clockSeeds    = 10
	chaosSeeds    = 20
)

// ordinary selects the tests of an ordinary run: all of them.
const ordinary = ""
