-- +goose Up
-- Money that a customer paid and gets back: the payment came after the order was
-- closed, cancelled or paid by another payment. The key ensures one row per payment.
CREATE TABLE refund_intents (
  order_id   TEXT    NOT NULL,
  payment_id TEXT    NOT NULL,
  reason     TEXT    NOT NULL, -- closed, cancelled or paid_twice
  created_at INTEGER NOT NULL,
  PRIMARY KEY (order_id, payment_id)
) WITHOUT ROWID;
-- orders.status is also 4 shipped, 5 confirmed, and stock_ledger.kind also ship.
-- The payment that made an order paid:
ALTER TABLE orders ADD COLUMN payment_id TEXT;
