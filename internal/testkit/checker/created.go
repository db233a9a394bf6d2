package checker

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
