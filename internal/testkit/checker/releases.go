package checker

import "fmt"

// Release is one call of the service that keeps stock.
type Release struct {
	Order, SKU, Key string
	Quantity        int64
}

// checkCreated: an acknowledged order is in the database.
func (v *Verdict) checkCreated(db *tables, e Expect) {
	var gone []string
	for _, id := range e.Created {
		if _, ok := db.orders[id]; !ok {
			gone = append(gone, id)
		}
	}
	v.Lost += v.several(gone, "%d orders were acknowledged and are not in the database, such as %v")
}

// checkReleases: the stock service got each line of each closed order, with one key and the right
// quantity, and nothing of other orders.
func (v *Verdict) checkReleases(db *tables, e Expect) {
	if e.Releases == nil {
		return
	}
	keys := map[[2]string]string{} // by order and SKU
	var twice, wrong, early, missing []string
	for _, r := range e.Releases {
		line, quantity := r.Order+" "+r.SKU, db.items[r.Order][r.SKU]
		key, again := keys[[2]string{r.Order, r.SKU}]
		switch {
		case again && key != r.Key:
			twice = append(twice, line)
		case db.orders[r.Order].status != closed:
			early = append(early, line)
		case quantity != r.Quantity:
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d", line, r.Quantity, quantity))
		}
		keys[[2]string{r.Order, r.SKU}] = r.Key
	}
	for id, items := range db.items {
		for sku := range items {
			if _, ok := keys[[2]string{id, sku}]; db.orders[id].status == closed && !ok {
				missing = append(missing, id+" "+sku)
			}
		}
	}
	v.Inconsistent += v.several(twice, "%d lines were released with different keys, such as %v")
	v.Inconsistent += v.several(wrong, "%d releases have the wrong quantity, such as %v")
	v.Inconsistent += v.several(early, "%d releases are of orders that are not closed, such as %v")
	v.Lost += v.several(missing, "%d lines of closed orders were never released, such as %v")
}
