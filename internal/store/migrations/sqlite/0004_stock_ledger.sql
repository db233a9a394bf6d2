-- +goose Up
-- Released or shipped stock, and why. The key ensures that it happens once.
CREATE TABLE stock_ledger (
  order_id   TEXT    NOT NULL,
  sku_id     TEXT    NOT NULL,
  kind       TEXT    NOT NULL, -- close or cancel
  quantity   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) WITHOUT ROWID;
