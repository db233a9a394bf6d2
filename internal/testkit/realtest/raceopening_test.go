package realtest

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/producer"
)

// openings opens payment pages in the last moment before the due time, in the two steps of docs/payments.md.
type openings struct {
	*rig
	provider *racedProvider
	now      string // the database's clock in SQL
	once     bool   // the second check is left out: then the race must fail

	mu sync.Mutex
	n  map[string]int // results
}

// refusedAgain is the result of an opening whose second check finds the order due.
const refusedAgain = "pages that the second check refused"

// newOpenings creates the shop's table of payments, and lets the provider read it. With RACE_CHECK_ONCE=1 the shop leaves out the second check.
func (r *rig) newOpenings(p *racedProvider) *openings {
	r.t.Helper()
	s := &openings{rig: r, provider: p, now: "UTC_TIMESTAMP(3)", once: os.Getenv("RACE_CHECK_ONCE") == "1", n: map[string]int{}}
	if producer.Dialect(r.store.Dialect()) == producer.Postgres {
		s.now = "statement_timestamp()"
	}
	id := "VARCHAR(64)"
	if producer.Dialect(r.store.Dialect()) == producer.MySQL {
		id += " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	}
	table := strings.ReplaceAll("CREATE TABLE order_payments (id {id} PRIMARY KEY, order_id {id} NOT NULL, reference VARCHAR(255) NULL)", "{id}", id)
	for _, statement := range []string{table, "CREATE INDEX order_payments_order ON order_payments (order_id)"} {
		must.Get(r.store.DB().ExecContext(r.t.Context(), statement))(r.t)
	}
	p.rows = s.rows
	return s
}

// rows returns the references of the payments of orders; "" for a payment that is being opened.
func (s *openings) rows(ctx context.Context, orders []string) (map[string][]string, error) {
	args := make([]any, len(orders))
	for i, id := range orders {
		args[i] = id
	}
	rows, err := s.store.DB().QueryContext(ctx, "SELECT order_id, reference FROM order_payments WHERE order_id IN (?"+
		strings.Repeat(", ?", len(orders)-1)+")", args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string][]string{}
	for rows.Next() {
		var order string
		var reference sql.NullString
		if err := rows.Scan(&order, &reference); err != nil {
			return nil, err
		}
		all[order] = append(all[order], reference.String)
	}
	return all, rows.Err()
}

// opening is how one page is opened.
type opening struct {
	before   time.Duration // the due time
	commit   time.Duration // how long the first transaction takes after its check
	provider time.Duration // how long the provider takes to create the page
	locks    bool          // the first transaction locks the order, which is not what makes this safe
}

func (*openings) draw(random *rand.Rand) opening {
	up := func(limit time.Duration) time.Duration { return time.Duration(random.Int64N(int64(limit))) }
	return opening{up(300 * time.Millisecond), up(200 * time.Millisecond), up(200 * time.Millisecond), random.IntN(2) == 0}
}

// open opens a page and reports whether the customer is sent there.
func (s *openings) open(o orderclose.Order, how opening) (id string, ok bool) {
	scenario.At(s.t.Context(), o.Due.Add(-how.before))
	row := "row-of-" + o.ID
	recorded := false
	s.eventually(func() (err error) { recorded, err = s.record(o.ID, row, how); return err })
	if !recorded {
		return "", s.tally("pages that the first check refused", false)
	}
	scenario.Pause(s.t.Context(), how.provider)
	id = s.provider.begin(o.ID, page{})
	payable := " AND EXISTS (SELECT 1 FROM orders o WHERE o.id = order_payments.order_id AND o.status = 0 AND o.expire_at > " + s.now + ")"
	if s.once {
		payable = ""
	}
	if s.refer(row, id, payable) {
		s.provider.sent(o.ID, id)
		return id, s.tally("pages that were opened in the last moment", true)
	}
	s.refer(row, id, "")
	s.provider.end(o.ID, id)
	return "", s.tally(refusedAgain, false)
}

// record is the first step: a row without a reference, if the order is unpaid and not due.
func (s *openings) record(order, row string, how opening) (recorded bool, err error) {
	tx, err := s.store.DB().BeginTx(s.t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // does nothing after the commit
	query := "SELECT id FROM orders WHERE id = ? AND status = 0 AND expire_at > " + s.now
	if how.locks {
		query += " FOR UPDATE"
	}
	var id string
	err = tx.QueryRowContext(s.t.Context(), query, order).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(s.t.Context(), "INSERT INTO order_payments (id, order_id) VALUES (?, ?)", row, order); err != nil {
		return false, err
	}
	scenario.Pause(s.t.Context(), how.commit)
	return true, tx.Commit()
}

// refer is the second step: it writes the reference into the row if the order is payable, and reports whether it was.
func (s *openings) refer(row, reference, payable string) (changed bool) {
	s.eventually(func() error {
		result, err := s.store.DB().ExecContext(s.t.Context(), "UPDATE order_payments SET reference = ? WHERE id = ?"+payable, reference, row)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		changed = n == 1
		return err
	})
	return changed
}

func (s *openings) tally(what string, result bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n[what]++
	return result
}

func (s *openings) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.n)
}
