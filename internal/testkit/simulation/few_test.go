package simulation

import (
	"math/rand/v2"
	"os"
	"runtime"
)

// few says that this is make test, which plays fewer scenarios than .ci/run: a sixth of the random ones, and one variant
// of those that take longest.
var few = os.Getenv("FEW_WORLDS") != ""

// Other packages run at the same time. On one processor the scenarios take 147 s of CPU instead of 160 s.
func init() {
	if few {
		runtime.GOMAXPROCS(1)
	}
}

// variants returns all variants of a scenario, or of few one at random. A variant that fails is in the name of its test
// or in what it prints.
func variants[T any](all ...T) []T {
	if few {
		return []T{all[rand.IntN(len(all))]}
	}
	return all
}
