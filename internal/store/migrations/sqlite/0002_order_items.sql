-- +goose Up
CREATE TABLE order_items (
  order_id TEXT    NOT NULL,
  line_no  INTEGER NOT NULL,
  sku_id   TEXT    NOT NULL,
  quantity INTEGER NOT NULL CHECK (quantity > 0),
  PRIMARY KEY (order_id, line_no)
) WITHOUT ROWID;
