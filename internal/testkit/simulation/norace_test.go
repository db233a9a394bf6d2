//go:build !race

package simulation

// The numbers of random scenarios of an ordinary run.
var (
	seeds         = scenarios(50)
	faultSeeds    = scenarios(30)
	databaseSeeds = scenarios(200)
	clockSeeds    = scenarios(10)
	chaosSeeds    = scenarios(20)
)

// scenarios returns all, or of few a sixth.
func scenarios(all int) int {
	if few {
		return all / 6
	}
	return all
}

// ordinary selects the tests of an ordinary run: all of them.
const ordinary = ""
