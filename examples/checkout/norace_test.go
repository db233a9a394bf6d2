//go:build !race

package checkout_test

// How many orders the race test has, how many events the restart test, and how many unknown ids are read.
const (
	racedOrders = 300
	manyEvents  = 250
	unknownIDs  = 10_000
)
