//go:build !race

package checkout_test

// How many orders the race test has, and how many events the restart test.
const (
	racedOrders = 300
	manyEvents  = 250
)
