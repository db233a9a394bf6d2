//go:build !race

package checkout_test

// How many orders an ordinary run has raced for, and events caught up with.
const (
	racedOrders = 300
	manyEvents  = 250
)
