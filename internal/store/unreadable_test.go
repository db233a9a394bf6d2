package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// TestMySQL_ARowThatCannotBeReadEndsNoPage holds for a sweep and an audit.
func TestMySQL_ARowThatCannotBeReadEndsNoPage(t *testing.T) { eachServer(t, unreadableRows) }

func unreadableRows(t *testing.T) {
	shop := examples(t)[1]
	s := open(t, store.Options{DSN: ownDatabase(t), Orders: shop.Mapping, MaxOpenConns: 2})
	must.Do(t, s.Migrate(t.Context()))
	month := time.Now().UTC().Format("200601")
	for _, ddl := range shop.DDL[:2] {
		exec(t, s.DB(), strings.ReplaceAll(ddl, shop.Month, month))
	}
	exec(t, s.DB(), "ALTER TABLE orders_"+month+" MODIFY order_no VARCHAR(32) NULL")
	exec(t, s.DB(), "ALTER TABLE order_lines_"+month+" MODIFY quantity INT NULL")
	exec(t, s.DB(), "INSERT INTO orders_"+month+" (order_no, status, created_ms, expire_ms) VALUES"+
		" ('a', 10, 1, 1000), (NULL, 10, 1, 2000), (NULL, 10, 1, 3000), ('b', 10, 1, 4000), ('c', 90, 1, 1000), ('d', 90, 1, 2000)")
	exec(t, s.DB(), "INSERT INTO order_lines_"+month+" (order_no, sku, quantity) VALUES ('c', 'ink', NULL), ('d', 'ink', 2)")

	var after orderclose.Order
	var found []string
	for {
		page := must.Get(s.Overdue(t.Context(), time.Now(), after, 1))(t)
		if len(page) == 0 {
			break
		}
		after = page[0]
		found = append(found, after.ID)
	}
	if got := strings.Join(found, " "); got != "a b" {
		t.Errorf("the sweep finds %q", got)
	}
	notes := must.Get(s.MappingHints(t.Context()))(t)
	if got := strings.Join(notes, "\n"); !strings.Contains(got, "orders whose order_no (orders.id) is NULL") {
		t.Errorf("the notes do not mention rows without an id: %s", got)
	}

	parts := must.Get(s.AuditParts(t.Context()))(t)
	rows := map[string]store.AuditRow{}
	for _, part := range parts {
		page := must.Get(s.AuditPage(t.Context(), part, time.Time{}, time.Now(), orderclose.Order{}, 10))(t)
		for _, r := range page {
			rows[r.ID] = r
		}
	}
	expect.That(t, len(rows) == 4 && rows["c"].LinesError != nil && rows["d"].LinesError == nil && rows["d"].LineQuantities["ink"] == 2,
		"the audit reads %+v", rows)
}
