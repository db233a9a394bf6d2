//go:build race

package checkout_test

// The race detector makes a test some ten times slower.
const (
	racedOrders = 60
	manyEvents  = 120
)
