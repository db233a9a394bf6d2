package checkout

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"orderclose/internal/store"
)

// The shop's own tables. Times are unix milliseconds. Names of requests and
// events are their SHA-256 in hex, which every collation compares alike; {id}
// stands for a text of at most 64 bytes that compares exactly.
var tables = []string{
	// Who has ordered what, and the points spent on it.
	`CREATE TABLE IF NOT EXISTS checkout_orders (
  order_id {id} NOT NULL PRIMARY KEY,
  customer {id} NOT NULL,
  points   BIGINT NOT NULL
)`,
	`CREATE TABLE IF NOT EXISTS checkout_customers (
  customer {id} NOT NULL PRIMARY KEY,
  points   BIGINT NOT NULL
)`,
	// Payments that were started; the provider's callback names one.
	`CREATE TABLE IF NOT EXISTS checkout_payments (
  payment_id {id} NOT NULL PRIMARY KEY,
  order_id   {id} NOT NULL,
  started_at BIGINT NOT NULL
)`,
	// What was answered to a request, so that a repeat gets the same.
	`CREATE TABLE IF NOT EXISTS checkout_requests (
  request     CHAR(64) NOT NULL PRIMARY KEY,
  fingerprint CHAR(64) NOT NULL,
  status      INT NOT NULL,
  body        TEXT NOT NULL,
  created_at  BIGINT NOT NULL
)`,
	// Events that were read, each once.
	`CREATE TABLE IF NOT EXISTS checkout_events (
  event      CHAR(64) NOT NULL PRIMARY KEY,
  created_at BIGINT NOT NULL
)`,
	// What a customer was told. A shop of more than an example mails from here.
	`CREATE TABLE IF NOT EXISTS checkout_notifications (
  event      CHAR(64) NOT NULL PRIMARY KEY,
  order_id   {id} NOT NULL,
  customer   {id} NOT NULL,
  text       TEXT NOT NULL,
  created_at BIGINT NOT NULL
)`,
}

// CreateTables makes the shop's own tables where they are missing, in the
// database of the orders.
func CreateTables(ctx context.Context, s *store.Store) error {
	id := "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	if s.Dialect() == store.SQLite {
		id = "TEXT"
	}
	for _, table := range tables {
		if _, err := s.DB().ExecContext(ctx, strings.ReplaceAll(table, "{id}", id)); err != nil {
			return fmt.Errorf("make the shop's tables: %w", err)
		}
	}
	return nil
}

// insertIgnore is an INSERT that does nothing where the key is taken.
func insertIgnore(d store.DialectName) string {
	if d == store.SQLite {
		return "INSERT OR IGNORE INTO "
	}
	return "INSERT IGNORE INTO "
}

// inserted runs such an INSERT and reports whether the row is new.
func inserted(ctx context.Context, tx *sql.Tx, query string, args ...any) (bool, error) {
	res, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
