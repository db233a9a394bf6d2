package store_test

import (
	"slices"
	"strings"
	"testing"

	"orderclose"
	"orderclose/internal/store"
	"orderclose/internal/tables"
)

// The ids of the orders compare exactly and those of their lines do not, as where
// somebody changed the collation of one table only.
func TestMySQL_LinesThatAreSpeltAlikeAreNotMixedUp(t *testing.T) { eachServer(t, speltAlike) }

func speltAlike(t *testing.T) {
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: &tables.Mapping{
		Orders: "o", ID: tables.Key{Column: "no"},
		Status: tables.Status{Column: "status", From: tables.Int(0), To: tables.Int(2)},
		Due:    tables.Moment{Column: "due", Type: tables.UnixSeconds},
		Items:  &tables.Items{Table: "l", Order: "no", SKU: "sku", Quantity: "n"},
		Stock:  &tables.Stock{Table: "g", SKU: tables.Key{Column: "sku"}, Available: "free", Reserved: "held"},
	}})
	for _, q := range []string{
		"CREATE TABLE o (no VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, status INT NOT NULL, due INT NOT NULL, KEY (status, due, no)) DEFAULT CHARSET utf8mb4",
		"CREATE TABLE l (no VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL, sku VARCHAR(20), n INT NOT NULL, KEY (no)) DEFAULT CHARSET utf8mb4",
		"CREATE TABLE g (sku VARCHAR(20) PRIMARY KEY, free INT NOT NULL, held INT NOT NULL) DEFAULT CHARSET utf8mb4",
		"INSERT INTO g VALUES ('ink', 0, 100)",
		"INSERT INTO o VALUES ('aB', 0, 1), ('Ab', 1, 1), ('ord-1', 0, 1), ('x-1', 0, 1), ('X-1', 0, 1)", // Ab is paid
		"INSERT INTO l VALUES ('aB', 'ink', 1), ('Ab', 'ink', 10), ('ORD-1', 'ink', 5), ('ord-1', 'ink', 2), ('x-1', 'ink', 3), ('X-1', 'ink', 4)",
	} {
		exec(t, s.DB(), q)
	}
	must(t, s.Migrate(t.Context()))
	var reqs []orderclose.CloseRequest
	for _, id := range []string{"aB", "Ab", "ord-1", "x-1", "X-1"} {
		reqs = append(reqs, orderclose.CloseRequest{OrderID: id})
	}
	for range 2 {
		_, err := s.CloseOrders(t.Context(), orderclose.PathPipeline, reqs)
		must(t, err)
	}
	var free, held int
	must(t, s.DB().QueryRowContext(t.Context(), "SELECT free, held FROM g").Scan(&free, &held))
	if free != 15 || held != 85 {
		t.Errorf("%d are free and %d held; want 15, of aB, ord-1, x-1 and X-1, and 85", free, held)
	}
	var got []string
	rows, err := s.DB().QueryContext(t.Context(), "SELECT CONCAT_WS(' ', order_id, quantity) FROM stock_ledger")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		must(t, rows.Scan(&text))
		got = append(got, text)
	}
	must(t, rows.Err())
	slices.Sort(got)
	if text := strings.Join(got, ", "); text != "X-1 4, aB 1, ord-1 7, x-1 3" {
		t.Errorf("the ledger has %s", text)
	}
}
