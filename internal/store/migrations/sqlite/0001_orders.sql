-- +goose Up
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
