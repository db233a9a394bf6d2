package checkout

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/orderclose/orderclose/examples/checkout/notices"
	"github.com/orderclose/orderclose/producer"
)

// The shop's own tables. Times are unix milliseconds. Keys of requests and ids of events are
// stored as SHA-256 in hex, which every collation compares exactly. {id} stands for a text of at
// most 64 bytes that compares exactly.
var tables = []string{
	// The customer of each order, and the points spent on it.
	`CREATE TABLE IF NOT EXISTS checkout_orders (
  order_id {id} NOT NULL PRIMARY KEY,
  customer {id} NOT NULL,
  points   BIGINT NOT NULL
)`,
	`CREATE TABLE IF NOT EXISTS checkout_customers (
  customer {id} NOT NULL PRIMARY KEY,
  points   BIGINT NOT NULL
)`,
	// Started payments. The provider's callback names a payment.
	`CREATE TABLE IF NOT EXISTS checkout_payments (
  payment_id {id} NOT NULL PRIMARY KEY,
  order_id   {id} NOT NULL,
  started_at BIGINT NOT NULL
)`,
	// Paid orders that will be delivered.
	`CREATE TABLE IF NOT EXISTS checkout_deliveries (
  order_id   {id} NOT NULL PRIMARY KEY,
  planned_at BIGINT NOT NULL
)`,
	// Answers of requests, for repeats.
	`CREATE TABLE IF NOT EXISTS checkout_requests (
  request     CHAR(64) NOT NULL PRIMARY KEY,
  fingerprint CHAR(64) NOT NULL,
  status      INT NOT NULL,
  body        TEXT NOT NULL,
  created_at  BIGINT NOT NULL
)`,
	// Coupons, and the order that has used each. The index serves the close, which gives them back.
	`CREATE TABLE IF NOT EXISTS checkout_coupons (
  coupon   {id} NOT NULL PRIMARY KEY,
  customer {id} NOT NULL,
  order_id {id} NULL,
  returned BIGINT NOT NULL,
  UNIQUE (order_id)
)`,
	// Messages to customers, as they were sent.
	`CREATE TABLE IF NOT EXISTS checkout_notifications (
  event      CHAR(64) NOT NULL PRIMARY KEY,
  order_id   {id} NOT NULL,
  customer   {id} NOT NULL,
  text       TEXT NOT NULL,
  created_at BIGINT NOT NULL
)`,
}

// CreateTables creates missing tables of the shop in the database of the orders.
func CreateTables(ctx context.Context, db *sql.DB, d producer.Dialect) error {
	id := "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	if d != producer.MySQL { // the others compare texts exactly
		id = "TEXT"
	}
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, strings.ReplaceAll(table, "{id}", id)); err != nil {
			return fmt.Errorf("create the shop's tables: %w", err)
		}
	}
	return notices.CreateTables(ctx, db, d)
}

// insertIgnore returns an INSERT that does nothing if the key exists.
func insertIgnore(d producer.Dialect) string {
	if d == producer.SQLite {
		return "INSERT OR IGNORE INTO "
	}
	return "INSERT IGNORE INTO "
}

// inserted runs a statement and reports whether it changed one row.
func inserted(ctx context.Context, tx *sql.Tx, query string, args ...any) (bool, error) {
	res, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
