-- The tables beside the orders. All times are unix milliseconds. AUTOINCREMENT: a deleted id is never
-- used again.

-- Released or shipped stock, and why. The key ensures that it happens once.
CREATE TABLE stock_ledger (
  order_id   TEXT    NOT NULL,
  sku_id     TEXT    NOT NULL,
  kind       TEXT    NOT NULL, -- close, cancel or ship
  quantity   INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (order_id, sku_id, kind)
) WITHOUT ROWID;
-- One row for each order that was closed, written with its close. Nothing writes the column try any more.
CREATE TABLE receipts (
  order_id    TEXT    NOT NULL PRIMARY KEY,
  verdict     TEXT    NOT NULL,
  due         INTEGER NOT NULL,
  closed_at   INTEGER NOT NULL,
  path        TEXT    NOT NULL, -- pipeline, sweep or touch
  attempts    INTEGER NOT NULL, -- how many attempts failed before
  lateness_ms INTEGER NOT NULL, -- closed_at - due
  try         INTEGER NOT NULL DEFAULT 0 -- a random number for each transaction
) WITHOUT ROWID;
CREATE TABLE outbox_events (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id   TEXT    NOT NULL,
  payload    TEXT    NOT NULL,
  created_at INTEGER NOT NULL
);
CREATE TABLE outbox_schedules (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id   TEXT    NOT NULL,
  payload    TEXT    NOT NULL,
  created_at INTEGER NOT NULL
);
-- When a sweep last finished, so that one process of many sweeps in each period.
CREATE TABLE sweeps (
  name        TEXT    NOT NULL, -- the close topic: each pipeline has one sweep
  finished_at INTEGER NOT NULL,
  PRIMARY KEY (name)
) WITHOUT ROWID;
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
-- Programs before version 14 have these steps one by one.
INSERT INTO orderclose_schema (version_id, is_applied) VALUES (4, 1), (5, 1), (6, 1), (10, 1), (11, 1), (12, 1), (13, 1);
