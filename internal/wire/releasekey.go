package wire

import "fmt"

// ReleaseKey returns the idempotency key for returning a SKU of an order to stock. kind is
// the reason, such as close. Each combination of the three has another key. Order ids and
// SKUs may contain any character, so the key holds the length of both.
func ReleaseKey(orderID, sku, kind string) string {
	return fmt.Sprintf("%d:%s/%d:%s/%s", len(orderID), orderID, len(sku), sku, kind)
}
