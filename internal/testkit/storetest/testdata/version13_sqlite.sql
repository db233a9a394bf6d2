-- The schema at version 13, as commit fc16a75 printed it.
CREATE TABLE orderclose_schema (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  version_id INTEGER NOT NULL,
  is_applied INTEGER NOT NULL,
  tstamp TIMESTAMP DEFAULT (datetime('now'))
);
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (0, 1);

-- 0001_orders.sql
-- All times are unix milliseconds. Ids compare exactly.
CREATE TABLE orders (
  id         TEXT    NOT NULL PRIMARY KEY,
  category   TEXT    NOT NULL,
  status     INTEGER NOT NULL, -- 0 unpaid, 1 paid, 2 closed, 3 cancelled
  created_at INTEGER NOT NULL,
  expire_at  INTEGER NOT NULL, -- when it is closed if still unpaid
  paid_at    INTEGER,
  closed_at  INTEGER,
  version    INTEGER NOT NULL  -- grows by one with each change of status
) WITHOUT ROWID;
CREATE INDEX orders_overdue ON orders (status, expire_at, id);
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (1, 1);

-- 0002_order_items.sql
CREATE TABLE order_items (
  order_id TEXT    NOT NULL,
  line_no  INTEGER NOT NULL,
  sku_id   TEXT    NOT NULL,
  quantity INTEGER NOT NULL CHECK (quantity > 0),
  PRIMARY KEY (order_id, line_no)
) WITHOUT ROWID;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (2, 1);

-- 0003_stock.sql
-- An order moves its quantity from available to reserved. A close or cancellation
-- moves it back, and shipping removes it from reserved.
CREATE TABLE stock (
  sku_id    TEXT    NOT NULL PRIMARY KEY,
  available INTEGER NOT NULL CHECK (available >= 0),
  reserved  INTEGER NOT NULL CHECK (reserved >= 0)
) WITHOUT ROWID;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (3, 1);

-- 0004_stock_ledger.sql
-- Released or shipped stock, and why. The key ensures that it happens once.
CREATE TABLE stock_ledger (
  order_id   TEXT    NOT NULL,
  sku_id     TEXT    NOT NULL,
  kind       TEXT    NOT NULL, -- close or cancel
  quantity   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) WITHOUT ROWID;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (4, 1);

-- 0005_receipts.sql
-- One row for each order that was closed, written with its close.
CREATE TABLE receipts (
  order_id    TEXT    NOT NULL PRIMARY KEY,
  verdict     TEXT    NOT NULL,
  due         INTEGER NOT NULL,
  closed_at   INTEGER NOT NULL,
  path        TEXT    NOT NULL, -- pipeline, sweep or touch
  attempts    INTEGER NOT NULL, -- how many attempts failed before
  lateness_ms INTEGER NOT NULL  -- closed_at - due
) WITHOUT ROWID;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (5, 1);

-- 0006_outbox_events.sql
-- AUTOINCREMENT: a deleted id is never used again.
CREATE TABLE outbox_events (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id   TEXT    NOT NULL,
  payload    TEXT    NOT NULL,
  created_at INTEGER NOT NULL
);
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (6, 1);

-- 0007_refund_intents.sql
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
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (7, 1);

-- 0010_receipts_try.sql
-- The transaction that wrote a receipt: after a commit without an answer, this
-- column shows whether the commit was done.
ALTER TABLE receipts ADD COLUMN try INTEGER NOT NULL DEFAULT 0; -- a random number for each transaction
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (10, 1);

-- 0011_outbox_schedules.sql
-- AUTOINCREMENT: a deleted id is never used again.
CREATE TABLE outbox_schedules (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id   TEXT    NOT NULL,
  payload    TEXT    NOT NULL,
  created_at INTEGER NOT NULL
);
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (11, 1);

-- 0012_sweeps.sql
-- When a sweep last finished, so that one process of many sweeps in each period.
CREATE TABLE sweeps (
  name        TEXT    NOT NULL, -- the close topic: each pipeline has one sweep
  finished_at INTEGER NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (12, 1);

-- 0013_pauses.sql
-- Each close reads this table first: no order is closed by a path that is paused. A category of ''
-- stands for all orders.
CREATE TABLE pauses (
  path       TEXT    NOT NULL,
  category   TEXT    NOT NULL,
  until_at   INTEGER NOT NULL,
  reason     TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (path, category)
) WITHOUT ROWID;
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (13, 1);
