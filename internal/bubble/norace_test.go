//go:build !race

package bubble

// How many random scenarios an ordinary run plays.
const (
	seeds         = 50
	faultSeeds    = 30
	databaseSeeds = 200
	clockSeeds    = 10
	chaosSeeds    = 20
)

// ordinary is what an ordinary run plays: everything.
const ordinary = ""
