package wire

import "fmt"

// ReleaseKey returns the idempotency key for returning a SKU of an order to stock. It
// names the row of the stock ledger. Ids may contain any character, so the key holds
// the length of each part.
func ReleaseKey(orderID, sku, kind string) string {
	return fmt.Sprintf("%d:%s/%d:%s/%s", len(orderID), orderID, len(sku), sku, kind)
}
