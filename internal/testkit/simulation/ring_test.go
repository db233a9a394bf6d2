package simulation

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/ring"
)

// seeds is the number of random scenarios of a test in each ring.
type seeds struct{ short, test, all int }

// With those of worlds, the seeds of make unit are six, and those of make test are sixty.
var (
	clockSeeds = seeds{0, 3, 10}
	listSeeds  = seeds{0, 1, 5}
	goneSeeds  = seeds{0, 4, 20}
)

func (s seeds) inRing() int {
	switch {
	case ring.All():
		return s.all
	case testing.Short():
		return s.short
	}
	return s.test
}

// variants returns all variants of a scenario, or the first one if the ring is not that of make test-all.
func variants[T any](all ...T) []T {
	if ring.All() {
		return all
	}
	return all[:1]
}

// spare makes the scenarios cost less of a processor, because other packages are tested at the same time. On one processor
// they take 147 s in place of 160 s, and with less garbage collection 121 s in place of 147 s.
func spare() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if !ring.All() && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}
