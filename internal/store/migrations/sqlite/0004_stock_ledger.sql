-- +goose Up
-- What was given back, and why. The key is what makes it once.
CREATE TABLE stock_ledger (
  order_id   TEXT    NOT NULL,
  sku_id     TEXT    NOT NULL,
  kind       TEXT    NOT NULL, -- close or cancel
  quantity   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) WITHOUT ROWID;
