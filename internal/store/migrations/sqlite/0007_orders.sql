-- The orders of a shop without tables of its own. All times are unix milliseconds. Ids compare exactly.
CREATE TABLE order_items (
  order_id TEXT    NOT NULL,
  line_no  INTEGER NOT NULL,
  sku_id   TEXT    NOT NULL,
  quantity INTEGER NOT NULL CHECK (quantity > 0),
  PRIMARY KEY (order_id, line_no)
) WITHOUT ROWID;
-- An order moves its quantity from available to reserved. A close or cancellation
-- moves it back, and shipping removes it from reserved.
CREATE TABLE stock (
  sku_id    TEXT    NOT NULL PRIMARY KEY,
  available INTEGER NOT NULL CHECK (available >= 0),
  reserved  INTEGER NOT NULL CHECK (reserved >= 0)
) WITHOUT ROWID;
CREATE TABLE orders (
  id         TEXT    NOT NULL PRIMARY KEY,
  category   TEXT    NOT NULL,
  status     INTEGER NOT NULL, -- 0 unpaid, 1 paid, 2 closed, 3 cancelled, 4 shipped, 5 confirmed
  created_at INTEGER NOT NULL,
  expire_at  INTEGER NOT NULL, -- when it is closed if still unpaid
  paid_at    INTEGER,
  closed_at  INTEGER,
  version    INTEGER NOT NULL, -- grows by one with each change of status
  payment_id TEXT              -- the payment that made it paid
) WITHOUT ROWID;
CREATE INDEX orders_overdue ON orders (status, expire_at, id);
-- Programs before version 14 have these steps one by one.
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (1, 1), (2, 1), (3, 1);
