package store_test

import (
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/store"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A shop with an order every ten seconds has closed none for an hour. A sweep reads one entry of the index on state and
// create_time for each order that it finds if there is one delay. With three delays it reads the orders that wait longer too.
func TestMySQL_RowsThatASweepByRuleReads(t *testing.T) { eachServer(t, rowsOfASweepByRule) }

func rowsOfASweepByRule(t *testing.T) {
	const kind = "ELT(1 + seq % 3, 'virtual', 'usual', 'presale')"
	shop := withOneStatus(shopsByRule(t)[0])
	for _, c := range []struct {
		delays orderclose.Delays
		wait   string // how long an order stays open, in seconds
		most   int    // entries of the index, and rows of our tables, for each order found
	}{
		{orderclose.Delays{Default: 30 * time.Minute}, "1800", 1},
		{orderclose.Delays{Default: 30 * time.Minute, ByCategory: map[string]time.Duration{"virtual": 5 * time.Minute, "presale": 24 * time.Hour}},
			"ELT(1 + seq % 3, 300, 1800, 86400)", 60},
	} {
		s := open(t, store.Options{DSN: ownDatabase(t), Orders: shop.Mapping, MaxOpenConns: 1, Delays: c.delays})
		exec(t, s.DB(), shop.DDL[0])
		must.Do(t, s.Migrate(t.Context()))
		must.Do(t, s.RecordDelays(t.Context()))
		exec(t, s.DB(), "INSERT INTO t_order (id, kind, state, create_time) SELECT 10001 - seq, "+kind+", IF(seq * 10 < "+c.wait+
			" + 3600, 'WAIT_PAY', 'CLOSED'), UTC_TIMESTAMP() + INTERVAL 8 HOUR - INTERVAL seq * 10 SECOND FROM "+numbers(10_000))
		found, read := sweepReads(t, s)
		t.Logf("%d delays: %d orders found, %d rows read, %.1f for each", 1+len(c.delays.ByCategory), found, read, float64(read)/float64(found))
		expect.That(t, found >= 350 && read <= c.most*found+50, "%v: %d orders found, %d rows read", c.delays, found, read)
	}
}

// sweepReads returns how many orders a sweep in pages of 100 finds, and how many rows the server reads for them.
func sweepReads(t *testing.T, s *store.Store) (found, read int) {
	now := must.Get(s.Now(t.Context()))(t)
	read = rowsRead(t, s, func() {
		for page := make([]orderclose.Order, 100); len(page) == 100; found += len(page) {
			page = must.Get(s.Overdue(t.Context(), now, page[len(page)-1], 100))(t)
		}
	})
	return found, read
}
