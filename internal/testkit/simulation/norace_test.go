//go:build !race

package simulation

import "os"

// The numbers of random scenarios of an ordinary run.
var (
	seeds         = scenarios(50)
	faultSeeds    = scenarios(30)
	databaseSeeds = scenarios(200)
	clockSeeds    = scenarios(10)
	chaosSeeds    = scenarios(20)
)

// scenarios returns all, or with FEW_WORLDS, as make test sets it, a sixth of them.
func scenarios(all int) int {
	if os.Getenv("FEW_WORLDS") != "" {
		return all / 6
	}
	return all
}

// ordinary selects the tests of an ordinary run: all of them.
const ordinary = ""
