package payments_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/payments"
)

func TestSQL_ReadsTheReferencesOfOrders(t *testing.T) {
	db, err := sql.Open("sqlite", "file:references?mode=memory")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE payments (order_id TEXT COLLATE NOCASE, session_id TEXT, started INT);
		INSERT INTO payments VALUES ('a', 'cs_1', 1), ('a', 'cs_2 ', 2), ('b', NULL, 3), ('c', '', 4), ('D', 'cs_3', 5), ('it''s', 'cs_4', 6)`); err != nil {
		t.Fatal(err)
	}
	references, err := payments.SQL(db, "SELECT order_id, session_id FROM payments WHERE order_id IN (?) ORDER BY started")
	if err != nil {
		t.Fatal(err)
	}
	got, err := references(t.Context(), []string{"a", "b", "c", "it's", "none", "'); DROP TABLE payments; --"})
	want := map[string][]string{"a": {"cs_1", "cs_2"}, "b": {""}, "c": {""}, "it's": {"cs_4"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := references(t.Context(), nil); len(got) > 0 || err != nil {
		t.Errorf("without orders: %v, %v", got, err)
	}
	// The database says that d and D are equal; for orderclose they are two orders.
	if _, err := references(t.Context(), []string{"d"}); err == nil || !strings.Contains(err.Error(), `order "D"`) || errors.Is(err, orderclose.ErrUnavailable) {
		t.Errorf("another order: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := references(gone, []string{"a"}); !errors.Is(err, orderclose.ErrUnavailable) {
		t.Errorf("the query is cut off: %v", err)
	}
	for query, says := range map[string]string{
		"SELECT order_id FROM payments WHERE order_id IN (?)":                  "not 1 columns",
		"SELECT session_id, order_id FROM payments WHERE order_id IN (?)":      "let the first column be",
		"SELECT order_id, session_id FROM no_such_table WHERE order_id IN (?)": "no_such_table",
	} {
		references, err := payments.SQL(db, query)
		if err == nil {
			_, err = references(t.Context(), []string{"a", "b"})
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{"", "SELECT 1, 2", "SELECT a, b FROM c WHERE a = ?", "SELECT a, b FROM c WHERE a IN (?) OR d IN (?)"} {
		if _, err := payments.SQL(db, query); err == nil {
			t.Errorf("%q: no error", query)
		}
	}
}
